"""`python -m trainmaster`: the same as the command `trainmaster`."""

import sys

from trainmaster.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
