"""PyTorch's distributed checkpoints, written and read at the speed of the hardware.

    import torch.distributed.checkpoint as dcp
    from trainmaster.training.distcp import CheckpointReader, CheckpointWriter

    dcp.save(state, storage_writer=CheckpointWriter("/checkpoints", step=1200))
    dcp.load(state, storage_reader=CheckpointReader("/checkpoints/step-00001200"))

What is written is an ordinary checkpoint: `dcp.load(state, checkpoint_id="/checkpoints/step-00001200")` reads it
without us, and the reader here reads what `dcp.save` wrote. Beside it lie a manifest and an index, JSON with checksums,
which are what we believe in.
"""

from trainmaster.training.distcp.planner import BalancedPlanner, CarefulPlanner
from trainmaster.training.distcp.reader import CheckpointReader
from trainmaster.training.distcp.writer import CheckpointWriter

__all__ = ["BalancedPlanner", "CarefulPlanner", "CheckpointReader", "CheckpointWriter"]
