"""The keys of a job file in words for its users; the page `docs/reference/job-file.md` is made from them.

`live/jobfile.py` reads the keys, and a test compares: no key is read that is not here, none is here that is not read,
and a file with every default written out means the same as one without.
"""

from typing import Final

from trainmaster.core.base.value import Value


class Key(Value):
    """`default` is TOML; where it is empty, `absent` says what holds without the key."""

    table: str = ""
    name: str
    default: str = ""
    absent: str = "none"
    meaning: str


def _key(path: str, default: str, meaning: str) -> Key:
    """A key with a default that can be written out."""
    table, _, name = path.rpartition(".")
    return Key(table=table, name=name, default=default, meaning=meaning)


def _open(path: str, absent: str, meaning: str) -> Key:
    """A key without such a default."""
    table, _, name = path.rpartition(".")
    return Key(table=table, name=name, absent=absent, meaning=meaning)


KEYS: Final = (
    _key("schema", '"trainmaster.job/v1"', "The form of the file."),
    _open("name", "required", "1 to 63 lower-case letters, digits and hyphens; not `job-NUMBER`."),
    _open("command", "required", "The program and its arguments, a list of strings; started once a rank."),
    _open("hosts", "required", "How many hosts it trains on, 1 to 65536."),
    _key("ranks_per_host", "1", "Processes a host, 1 to 1024; mostly one a GPU."),
    _key("spares", "0", "Hosts that are held ready to stand in, 0 to 65536."),
    _key("priority", "0", "Higher goes first, -1000 to 1000."),
    _key("workdir", '"."', "Where the command starts; `~` is your home directory."),
    _key(
        "preload",
        "[]",
        "Modules that a warm process imports ahead, besides what the script is seen to need of PyTorch and of ours; a "
        "restart is then a fork. Needs a Python command. `false`: no warm process.",
    ),
    _key(
        "on_drain",
        '"move"',
        "At a planned drain of one of its hosts: `move` to a spare after a checkpoint, or `finish`.",
    ),
    _key("yield_deadline_s", "60", "How long its ranks may take to leave with a checkpoint when asked to, 1 to 86400."),
    _open(
        "env.NAME",
        "none",
        "Variables for its processes, strings. Those that a launch sets itself (`RANK`, `MASTER_ADDR`, "
        "`TRAINMASTER_...`) are refused.",
    ),
    _open("checkpoint.dir", "a directory below the job's own", "Where checkpoints go; all hosts must share it."),
    _key("checkpoint.every_steps", "0", "Steps between checkpoints; 0: only when asked for and at the end."),
    _open(
        "checkpoint.every",
        "none",
        '`"auto"`: as often as wastes least, chosen while it runs; instead of `every_steps`.',
    ),
    _key("checkpoint.keep", "2", "Published checkpoints that are kept, 1 to 10000."),
    _key("checkpoint.snapshot_every_steps", "1", "Steps between snapshots into the memory of the hosts; 0: none."),
    _key("checkpoint.replicate_every_steps", "1", "Steps between copies of them to another host; 0: none."),
    _key(
        "checkpoint.room_wait_s",
        "600",
        "How long the last save waits for space on a full disk, trying again, before the job fails; 0 to 604800.",
    ),
    _key("restart.max_restarts", "3", "Restarts through its own fault within `window_s`, 0 to 10000; then it fails."),
    _key("restart.window_s", "3600", "The time over which they count, 1 to 2592000."),
    _key("restart.same_failure_limit", "3", "Starts in a row that may fail the same way, 1 to 1000; then it fails."),
    _key("restart.standby", "false", "Start workers ahead, on spares too. The script must use `tm.run`."),
    _open(
        "checks.agreement_every_steps",
        "as often as is next to free",
        "Steps between comparisons of data-parallel replicas; 0: never.",
    ),
    _key("hangs.recover", "true", "End ranks that hang, and go on in place; `false`: they are only named."),
    _open(
        "hangs.bound_s",
        "by its own steps",
        "A step that takes longer is a hang, 1 to 86400; else the largest of 3 s, five medians of the last steps and "
        "twice the longest, and what may yet end by itself has twice that, and 30 s at least.",
    ),
    _key("maintenance.notice_s", "0", "From being told of planned maintenance until its hosts may leave."),
    _key("maintenance.checkpoint_wait_s", "0", "How long its next checkpoint is waited for after that."),
    _open("maintenance.protected_until", "none", "Its hosts are not touched before: `2026-12-01T02:00:00Z`."),
    _open("maintenance.expected_duration_s", "unknown", "From its start to its end, as far as you know; 1 or more."),
    _key(
        "maintenance.wait_for_end_s",
        "0",
        "It is let to its end if that is no farther away; needs `expected_duration_s`.",
    ),
)
