"""Rows of reason tokens for rollouts and for health: text, meaning, advice. `tokens` lists them in their order; they
stand here because one table of all would be too long a file.
"""

from typing import Final

Row = tuple[str, str, str]

# Rollouts
VERSION_REJECTED: Final[Row] = (
    "version-rejected",
    "A new version fails more often than it may, so its rollout was ended and goes no further.",
    "Read the numbers, correct the version, and roll out the next one; its hosts are rolled back or held.",
)
ROLLOUT_STOPPED: Final[Row] = (
    "rollout-stopped",
    "A person ended the rollout; hosts that have the version keep it.",
    "Begin another rollout, of this version or of the former one.",
)
STAGE_OVERDUE: Final[Row] = (
    "stage-overdue",
    "A stage of a rollout did not gather enough evidence within its limit, and waits for a person.",
    "Give it more time (resume), pass it at your own risk, or stop it; the numbers say what is missing.",
)
ROLLOUT_PAUSED: Final[Row] = (
    "rollout-paused",
    "A person paused the rollout; its evidence is still counted.",
    "Resume it, or stop it.",
)
STAGE_FAILED: Final[Row] = (
    "stage-failed",
    "Every operation of a stage failed, and the stage is too small for that to be a proof.",
    "Look at the hosts; then let it go on, at your risk, with `trainmaster maint promote ROLLOUT`, or abort it.",
)
STAGE_HOLDS: Final[Row] = (
    "stage-holds",
    "A stage of a rollout has too little evidence to pass; the numbers say how much more it needs.",
    "Wait: it passes or is rejected by itself.",
)
DIRECTORY_TAKEN: Final[Row] = (
    "directory-taken",
    "Another job that has not ended keeps its checkpoints in the same directory.",
    "Name another `dir` under [checkpoint], wait until that job ends, or cancel it.",
)
ROLLOUT_RESUMED: Final[Row] = ("rollout-resumed", "A person let the rollout go on.", "Nothing.")
GANG_UPGRADE: Final[Row] = (
    "gang-upgrade",
    "All hosts of the job are upgraded together, and it starts again when they agree.",
    "Wait; `trainmaster maint ls` shows the operations of its hosts.",
)
STAGE_PASSED: Final[Row] = ("stage-passed", "The evidence of a stage was good, so the rollout goes on.", "Nothing.")

# Training
REPLICAS_DISAGREE: Final[Row] = (
    "replicas-disagree",
    "Ranks that should hold the same parameters hold different bits: a host computed or kept them wrongly.",
    "The job goes on from the last state that agreed. Verify the host that is named; if none is, all of them.",
)
AGENT_AWAY: Final[Row] = (
    "agent-away",
    "A job that lost a host also has a host whose agent is away; what runs there may be whole, so it is waited for.",
    "Wait: within seconds the agent is back, or its host is lost as well.",
)
RESULT_UNSAVED: Final[Row] = (
    "result-unsaved",
    "All steps are done, but the last save found no room for as long as the job was to wait; its memory is given back.",
    "Make room at the path that is named, and requeue it: it does the steps since its last checkpoint again.",
)
PRELOAD_FAILED: Final[Row] = (
    "preload-failed",
    "A module of `preload` could not be imported ahead, or started a thread; ranks import it themselves, later.",
    "Correct `preload` in the job file, or install the module in the environment of the agents.",
)

RANK_HUNG: Final[Row] = (
    "rank-hung",
    "A rank did not go on, and the others waited for it beyond the bound: it was ended, and the job went on.",
    "Read what it wrote (`trainmaster job logs`). If it was only slow: `session.phase`, or `[hangs]` in the job file.",
)

# Health
HEALTH_OBSERVES: Final[Row] = (
    "health-observes",
    "The host is bad, and its pool is only observed: the sentence says what would be done and whom it would touch.",
    "Look at it; `trainmaster health promote POOL` lets health act on the pool.",
)
BREAKER_TRIPPED: Final[Row] = (
    "breaker-tripped",
    "Health has taken out as many hosts of the pool as it may, or a person tripped its breaker; nothing more is taken.",
    "See whether one cause is behind them all; `trainmaster health breaker reset POOL` goes on with what still holds.",
)
REMEDY_RUNS: Final[Row] = (
    "remedy-runs",
    "An operation repairs the host: it drains, is worked on, and proves that it works.",
    "Wait; `trainmaster maint show OPERATION` says how far it is.",
)
LOOKS_AGAIN: Final[Row] = (
    "looks-again",
    "The remedy was carried out, and something bad or unknown still stands; the probes get time to look again.",
    "Wait: the host returns, or the next remedy follows.",
)
HOST_AWAY: Final[Row] = (
    "host-away",
    "The host is lost, so no remedy can be run on it.",
    "Power it on or repair it; what was bad is judged anew when its agent is back.",
)
WANTS_TRIAGE: Final[Row] = (
    "wants-triage",
    "The host is bad, and no remedy that runs by itself is left: a person has to look.",
    "Read `trainmaster host why HOST`; when it is repaired, `trainmaster health release HOST`.",
)
WANTS_RMA: Final[Row] = (
    "wants-rma",
    "A part of the host has to go back to its vendor.",
    "See `trainmaster rma ls`; after the swap, `trainmaster rma close RMA` and `trainmaster health release HOST`.",
)
WANTS_CONFIG: Final[Row] = (
    "wants-config",
    "The host is bad because of how it is set up; nothing is broken.",
    "Correct the setting that the finding names, then `trainmaster health release HOST`.",
)
BAD_CONDUCT: Final[Row] = (
    "bad-conduct",
    "What the fleet file says of health contradicts itself, or names what the fleet does not have.",
    "Correct [health] of the fleet file as the sentence says.",
)
NO_SUCH_POOL: Final[Row] = (
    "no-such-pool",
    "Health knows no pool of this name.",
    "Name a pool of [health] in the fleet file; `trainmaster health breaker show` lists them.",
)
CASE_CLOSED: Final[Row] = ("case-closed", "A fault of a host is over; the sentence says how.", "Nothing.")
NO_SUCH_CASE: Final[Row] = (
    "no-such-case",
    "No fault has this id, or it is over for so long that only the log knows it.",
    "See `trainmaster health ls --cases --all`.",
)
NO_SUCH_RMA: Final[Row] = ("no-such-rma", "No part was sent back under this id.", "See `trainmaster rma ls --all`.")
NO_SUCH_UNIT: Final[Row] = (
    "no-such-unit",
    "The host has no part in a slot of this name.",
    "Name a slot as `trainmaster host history HOST` shows it, or `host` for the whole host.",
)
RMA_OPEN: Final[Row] = (
    "rma-open",
    "What is in this slot goes back already.",
    "See `trainmaster rma ls`; close that one first if it is another part.",
)
RMA_CLOSED: Final[Row] = (
    "rma-closed",
    "What was sent back under this id is closed already.",
    "See `trainmaster rma show RMA`; open another one if the slot fails again.",
)
