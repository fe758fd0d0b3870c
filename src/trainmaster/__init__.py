"""Trainmaster keeps large synchronous training jobs running on a fleet that is always being repaired and upgraded."""

__version__ = "0.1.0"
