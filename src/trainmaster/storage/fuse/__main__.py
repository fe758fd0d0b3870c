"""`python -m trainmaster.storage.fuse OPTIONS DESCRIPTOR`: what holds a mount, as `launch.start` runs it."""

import os
import sys

from trainmaster.core.base.value import decode, encode
from trainmaster.storage.fuse.daemon import Options, Outcome, hold


def main() -> int:
    descriptor = int(sys.argv[2])
    os.chdir("/")  # the directory that we were started from must not be kept

    def tell(outcome: Outcome) -> None:
        os.write(descriptor, encode(outcome) + b"\n")

    return hold(decode(sys.argv[1], Options), tell)


if __name__ == "__main__":
    sys.exit(main())
