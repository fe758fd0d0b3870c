"""Errors that a user sees. Each says what went wrong, why, and what to do next; none shows a traceback.

    UserError
    ├── Failed         1   it ran, and the answer is no or the operation failed
    ├── WrongUsage     2   wrong usage
    ├── NoSuchThing    3   no such thing
    ├── WorldMoved     4   the world moved since the plan
    ├── NotAllowed     5   not allowed
    ├── Unreachable    6   server unreachable or timed out
    └── PartlyDone     7   partly done; the report lists what is left

Raise one of these from a command; `cli/main.py` prints it and exits with its code. Errors of the layers below
(host lists, files, settings) are translated in `translate`, the only place that knows both sides.
"""

import errno
from typing import ClassVar, Final

EXIT_CODES: Final = {
    0: 'done, or "yes"',
    1: 'failed, or "no"',
    2: "wrong usage",
    3: "no such thing",
    4: "the world moved since the plan",
    5: "not allowed",
    6: "server unreachable or timed out",
    7: "partly done; the report lists what is left",
    130: "interrupted",
}


class UserError(Exception):
    """What, why, what next. `why` and `fix` may be empty where there is nothing to add."""

    exit_code: ClassVar[int]

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(what)

    def text(self) -> str:
        """Lines for stderr; further lines of a part are set in under its first."""
        parts = [("error: ", self.what), ("  why: ", self.why), ("  try: ", self.fix)]
        return "\n".join(head + body.replace("\n", "\n" + " " * 7) for head, body in parts if body)


class Failed(UserError):
    exit_code = 1


class WrongUsage(UserError):
    exit_code = 2


class NoSuchThing(UserError):
    exit_code = 3


class WorldMoved(UserError):
    exit_code = 4


class NotAllowed(UserError):
    exit_code = 5


class Unreachable(UserError):
    exit_code = 6


class PartlyDone(UserError):
    exit_code = 7


def translate(error: BaseException) -> UserError | None:
    """The user error that stands for an error of a lower layer; None for a defect of ours."""
    if isinstance(error, UserError):
        return error
    # Imported here: these modules are loaded already if one of their errors was raised, and cost start-up time if not.
    from trainmaster.core.base.hostlist import HostListError
    from trainmaster.live.config import SettingError
    from trainmaster.live.tomlfile import FileError
    from trainmaster.ports.errors import UserError as PortError

    if isinstance(error, HostListError):
        where = f"line {error.line_number}: " if error.line_number > 1 else ""
        return WrongUsage("cannot read the host list", f"{error.excerpt()}\n{where}{error.reason}", error.fix)
    if isinstance(error, SettingError):
        return WrongUsage(f"bad setting from {error.origin}", error.reason, error.fix)
    if isinstance(error, PortError):
        return Failed(error.what, error.why, error.fix)
    if isinstance(error, FileError):
        count = len(error.problems)
        what = f"cannot use the {error.kind} {error.file}" + (f": {count} problems" if count > 1 else "")
        return WrongUsage(what, "\n".join(str(problem) for problem in error.problems))
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        what = f"cannot use {error.filename}" if error.filename else "cannot write the output"
        return Failed(what, error.strerror or str(error), _OF_THE_MACHINE[error.errno])
    return None


_OF_THE_MACHINE: Final = {
    errno.EACCES: "use a place that you may write to, or ask for the right to it",
    errno.EPERM: "use a place that you may write to, or ask for the right to it",
    errno.EROFS: "use a place that can be written to",
    errno.ENOSPC: "make room, then run the command again",
    errno.EDQUOT: "make room in your quota, then run the command again",
    errno.ENOTDIR: "give a directory; a part of this path is a file",
    errno.EISDIR: "give a file; this is a directory",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ELOOP: "follow the links of this path; they go round in a circle",
    errno.EIO: "look at the kernel's log; the disk does not answer as it should",
}
"""What is wrong with the machine or the path, not with us; and what to do."""
