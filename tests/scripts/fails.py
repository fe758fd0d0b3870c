"""A training script with a fault of its own: rank 1 fails at once, the others wait for it."""

import os
import time

if os.environ["RANK"] == "1":
    raise ValueError("the learning rate is a banana")
time.sleep(60)
