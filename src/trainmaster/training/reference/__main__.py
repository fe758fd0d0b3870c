"""Runs the reference trainer."""

import sys

from trainmaster.training.reference.main import main

sys.exit(main())
