"""Bytes of checkpoints: where they lie, how they get there at the speed of the hardware, how they are summed.

Nothing here imports PyTorch, so the command line can look, verify, compare and export in the time that Python takes to
start. What needs PyTorch's types (its writer and reader interfaces) stands in `training/distcp`.
"""
