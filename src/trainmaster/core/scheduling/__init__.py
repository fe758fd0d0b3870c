"""The queue and gang placement, with a reason for every wait."""
