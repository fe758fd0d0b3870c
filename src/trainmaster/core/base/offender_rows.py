"""Rows of the table of tokens (`tokens.py`) that concern repeat offenders; there stands where each has its place."""

from typing import Final

NO_FAULT_FOUND: Final = (
    "no-fault-found",
    "A part of this slot was sent back, the vendor found no fault in it, and the slot fails again.",
    "Look at what the sentence suggests (board, cable, feed) before another part is sent back.",
)
PART_OFFENDS: Final = (
    "part-offends",
    "The same part failed again and again, or took its fault along to another slot.",
    "Send it back: see `trainmaster rma show RMA` for the evidence.",
)
SLOT_OFFENDS: Final = (
    "slot-offends",
    "The same slot failed again and again, with one part or with several.",
    "See `trainmaster host history HOST`; exchange the part, or look at the board if that was done.",
)
HOST_OFFENDS: Final = (
    "host-offends",
    "The same host failed again and again, in different units.",
    "Look at what its units share: power, cooling, board, firmware.",
)
PLACE_OFFENDS: Final = (
    "place-offends",
    "Different hosts failed at the same place of a rack.",
    "Look at the place: feed, cooling, cabling, neighbours.",
)
LEMON: Final = (
    "lemon",
    "Over weeks a host failed, was taken out or killed jobs far more often than its peers.",
    "Take it out and find the cause; the numbers say which features, of the host and of its peers.",
)
