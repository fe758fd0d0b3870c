"""Adapters of the ports to the live world, one file each."""
