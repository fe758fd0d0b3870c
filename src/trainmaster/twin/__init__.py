"""The twin: the same policies in simulated time."""
