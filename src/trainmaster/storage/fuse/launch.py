"""Starting a mount in the background, and ending it."""

import errno
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from trainmaster.core.base.value import decode, encode
from trainmaster.storage.fuse import mounting, store
from trainmaster.storage.fuse.daemon import Options, Outcome
from trainmaster.storage.fuse.refused import Refused

END_S: Final = 30.0
_LOOK_S: Final = 0.01


def start(options: Options) -> Outcome:
    """Returns when the mount stands. Raises `Refused`, `OSError`."""
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "trainmaster.storage.fuse", encode(options).decode(), str(theirs)]
    with open(os.devnull, "r+b") as nothing, open(ours, "rb") as answer, tempfile.TemporaryFile("w+b") as errors:
        try:
            process = subprocess.Popen(
                command, stdin=nothing, stdout=nothing, stderr=errors, pass_fds=(theirs,), start_new_session=True
            )
        finally:
            os.close(theirs)
        line = answer.readline()
        if not line:
            code = process.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            why = said[-1] if said else f"its process ended with {code}"
            raise Refused("the mount did not come up", why, f"look at the end of {Path(options.store) / store.LOG}")
    outcome = decode(line, Outcome)
    if outcome.what:
        process.wait()
        raise Refused(outcome.what, outcome.why, outcome.fix)
    process.returncode = 0  # it outlives us, on purpose: nobody waits for it here
    return outcome


def stop(directory: Path, lazily: bool, end_s: float = END_S) -> Path:
    """Unmounts and returns when the store is free again; where the store is. Raises `Refused`, `OSError`."""
    found = mounting.mounted_at(directory)
    if found is None:
        raise Refused(
            f"nothing is mounted at {directory}", "the kernel's list of mounts has no such line", "look at: mount"
        )
    if found.kind != mounting.KIND:
        raise Refused(
            f"{directory} is no mount of trainmaster",
            f"it is {found.source} ({found.kind})",
            "unmount it with the program that mounted it",
        )
    try:
        mounting.unmount(directory, lazily)
    except OSError as error:
        if error.errno == errno.EBUSY:
            why = "programs have files or directories of it open"
            fix = f"end them (fuser -vm {directory} lists them), or: trainmaster umount --lazy {directory}"
            raise Refused(f"{directory} is in use", why, fix) from error
        if error.errno == errno.EPERM:
            raise Refused(
                f"cannot unmount {directory}", "this user may not", "run it as the user who mounted it"
            ) from error
        raise
    root = Path(found.source)
    deadline = time.monotonic() + end_s
    while store.is_claimed(root) and not lazily:
        if time.monotonic() > deadline:
            raise Refused(
                f"{directory} is unmounted, but its process has not ended",
                f"process {store.holder(root)[0]} still has {root} after {end_s:g} s",
                f"look at the end of {root / store.LOG}",
            )
        time.sleep(_LOOK_S)
    return root
