"""The core decides. It takes events and returns effects, and does nothing else.

No clock, randomness, files, sockets, threads, async or logging here (`tests/tidy` enforces it). Time and chance come in
as arguments, so the live world and a simulated one run the very same policies, and the same log gives the same state.
"""
