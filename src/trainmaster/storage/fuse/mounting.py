"""Mounting and unmounting: `mount(2)` for root, else `fusermount3`, which is set-user-id and hands the device over.

Everything that can be in the way is looked for first and told in a sentence. Nothing here looks into a mounted
directory: where nobody answers, a look would wait for ever, or fail with "transport endpoint is not connected". What is
mounted is read from the kernel's list.
"""

import array
import ctypes
import errno
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from trainmaster.storage.fuse.protocol import REQUEST_BYTES
from trainmaster.storage.fuse.refused import Refused

KIND: Final = "fuse.trainmaster"
DEVICE: Final = "/dev/fuse"
_NOSUID: Final = 2
_NODEV: Final = 4
_DETACH: Final = 2
_HELPER: Final = "fusermount3"
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Mounted(NamedTuple):
    directory: Path
    kind: str
    source: str


def mounted_at(directory: Path, table: str | None = None) -> Mounted | None:
    """What is mounted there, the topmost; None if nothing is. `table` is the kernel's list (default: read it)."""
    found = None
    for line in (Path("/proc/self/mountinfo").read_text() if table is None else table).splitlines():
        head, _, tail = line.partition(" - ")
        if _unescaped(head.split()[4]) == str(directory):
            kind, source = tail.split()[:2]
            found = Mounted(directory, kind, _unescaped(source))
    return found


def mount_of(path: Path) -> Mounted | None:
    """The mount of ours on which an absolute path lies; None if it lies elsewhere."""
    for directory in (path, *path.parents):
        found = mounted_at(directory)
        if found is not None:
            return found if found.kind == KIND else None
    return None


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def answers(directory: Path) -> bool:
    """Whether somebody still serves a mount. Raises `OSError` for what else is wrong."""
    try:
        os.statvfs(directory)
    except OSError as error:
        if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):
            return False
        raise
    return True


def refuse_place(store: Path, directory: Path) -> None:
    """Raises `Refused` if `directory` is no place for a mount. A dead mount of this store is taken away first."""
    found = mounted_at(directory)
    if found is not None:
        if found.kind != KIND:
            raise Refused(
                f"something else is mounted at {directory}",
                f"it is {found.source} ({found.kind})",
                "give another directory, or unmount that first",
            )
        if answers(directory):
            raise Refused(
                f"{directory} is a mount already",
                f"it shows the store {found.source}",
                f"use it, or: trainmaster umount {directory}",
            )
        unmount(directory, lazily=True)
    if store == directory or store in directory.parents or directory in store.parents:
        raise Refused(
            f"{directory} and the store {store} lie in each other",
            "the mount would have to answer itself",
            "give a directory outside of the store",
        )
    if not directory.is_dir():
        why = "it is a file" if directory.exists() else "there is no such directory"
        raise Refused(f"cannot mount at {directory}", why, f"make it: mkdir {directory}")
    if any(directory.iterdir()):
        raise Refused(
            f"{directory} is not empty",
            "the mount would hide what is in it",
            "give an empty one, or move what is in it",
        )


def refuse_machine(device: str = DEVICE) -> None:
    """Raises `Refused` if this user can mount nothing here."""
    if not os.path.exists(device):
        raise Refused(
            f"there is no {device}",
            "the kernel offers no file systems in user space here",
            "load it: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN",
        )
    if os.geteuid() != 0 and shutil.which(_HELPER) is None:
        raise Refused(
            "this user may not mount",
            f"only root may, or others with {_HELPER}, which is not installed",
            "apt install fuse3",
        )


def mount(store: Path, directory: Path, by_helper: bool | None = None) -> int:
    """Mounts; the descriptor on which the kernel asks. Raises `Refused`."""
    if os.geteuid() != 0 if by_helper is None else by_helper:
        return _by_helper(store, directory)
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _not_allowed(directory, error.strerror or str(error)) from error
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
    arguments = (os.fsencode(store), os.fsencode(directory), KIND.encode(), _NOSUID | _NODEV, options.encode())
    if _libc.mount(*arguments) != 0:
        number = ctypes.get_errno()
        os.close(device)
        raise _not_allowed(directory, os.strerror(number))
    return device


def _not_allowed(directory: Path, why: str) -> Refused:
    fix = "run it as root; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
    return Refused(f"cannot mount at {directory}", why, fix)


def _by_helper(store: Path, directory: Path) -> int:
    """The helper mounts and sends the descriptor over a socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        source = str(store).replace("\\", "\\\\").replace(",", "\\,")
        options = f"fsname={source},subtype=trainmaster,default_permissions,nosuid,nodev"
        if os.geteuid() == 0 or _others_may():
            options += ",allow_other"
        ran = subprocess.run(
            [_HELPER, "-o", options, "--", str(directory)],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise Refused(
                f"cannot mount at {directory}",
                ran.stderr.strip().removeprefix(f"{_HELPER}: ") or f"{_HELPER} ended with {ran.returncode}",
                "mount on a directory of your own; in a container: --device /dev/fuse --cap-add SYS_ADMIN",
            )
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    numbers = array.array("i")
    for level, kind, data in ancillary:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        numbers.frombytes(data[:4])
    os.set_inheritable(numbers[0], False)
    return numbers[0]


def _others_may(settings: Path = Path("/etc/fuse.conf")) -> bool:
    try:
        return "user_allow_other" in settings.read_text().split("\n")
    except FileNotFoundError:
        return False


def unmount(directory: Path, lazily: bool) -> None:
    """Raises `OSError` (`EBUSY` while it is used; lazily it goes when nobody uses it any more), `Refused`."""
    if os.geteuid() == 0:
        if _libc.umount2(os.fsencode(directory), _DETACH if lazily else 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
        return
    command = [_HELPER, "-u", *(["-z"] if lazily else []), "--", str(directory)]
    ran = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        if "busy" in ran.stderr:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(directory))
        raise Refused(f"cannot unmount {directory}", ran.stderr.strip(), "run it as the user who mounted it")


def read_ahead(directory: Path) -> None:
    """Lets the kernel read a whole request ahead, where it lets us: its usual 128 KiB make eight requests of one."""
    number = os.stat(directory).st_dev
    setting = Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb")
    try:
        setting.write_text(str(REQUEST_BYTES >> 10))
    except (PermissionError, FileNotFoundError):
        return  # other users' right, or another machine's way; slower, and as right
