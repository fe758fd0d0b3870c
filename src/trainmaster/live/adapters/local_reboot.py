"""What a local fleet has in place of `systemctl reboot`; its agents are started with it.

    python -m trainmaster.live.adapters.local_reboot STATE HOST

The host's memory goes, and everything that runs on it ends at once, its agent included; its disk stays. The nanny boots
it again after the fleet's `reboot_s`.
"""

import sys
from pathlib import Path

from trainmaster.core.base.ids import HostId
from trainmaster.live.adapters import local
from trainmaster.ports.errors import UserError


def main(state: str, host: str) -> int:
    try:
        local.reboot_host(Path(state), HostId(host))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
