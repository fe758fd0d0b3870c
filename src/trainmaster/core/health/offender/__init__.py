"""Offenders: history by host, slot, part and place in the rack, lemons, and returns to the vendor."""
