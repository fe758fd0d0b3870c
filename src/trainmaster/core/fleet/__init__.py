"""Hosts, platforms, lifecycle, holds."""
