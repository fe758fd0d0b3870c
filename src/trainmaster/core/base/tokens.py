"""The table of reason tokens, the dominant ones first: what only a person can change, what needs repair, what needs
other work to end, what passes by itself.

To add a token, add one row (some stand in `token_rows`). Rows are never reused for another meaning; a token that is
printed once lives for ever.
"""

from enum import Enum

from trainmaster.core.base import offender_rows, token_rows


class Token(str, Enum):  # noqa: UP042  (a row has more than its text)
    """One row a token: name, text, what it means, what to do."""

    meaning: str
    advice: str

    def __new__(cls, text: str, meaning: str, advice: str) -> "Token":
        token = str.__new__(cls, text)
        token._value_ = text
        token.meaning = meaning
        token.advice = advice
        return token

    __hash__ = str.__hash__  # that of an enumeration is written in Python

    def __str__(self) -> str:
        return str(self._value_)

    @property
    def precedence(self) -> int:
        """Place in the table, from 0; the lower one is shown."""
        return _PLACES[self]

    # Requests that are refused
    BAD_REQUEST = (
        "bad-request",
        "The request cannot be read: a field is missing, unknown, or out of range.",
        "Correct the field that the sentence names, and send it again.",
    )
    NOT_ALLOWED = (
        "not-allowed",
        "The caller may not do this: no token, a wrong one, or a read-only session.",
        "Use a token of a role that may, or leave out --readonly.",
    )
    NO_SUCH_HOST = (
        "no-such-host",
        "The fleet has no host of this name.",
        "See `trainmaster host ls`; padding is part of a name (7 is not 07).",
    )
    NO_SUCH_JOB = ("no-such-job", "No job has this id or name.", "See `trainmaster job ls --all`.")
    NO_SUCH_RESOURCE = (
        "no-such-resource",
        "A scope of maintenance names something that the fleet does not have, or nothing at all.",
        "Name hosts, racks, rows, pods, planes or clusters of the fleet file, as host/h1 or rack/R.",
    )
    NO_SUCH_KIND = (
        "no-such-kind",
        "The catalogue has no kind of operation of this name, or none is declared.",
        "Name a kind of the catalogue; `upgrade` is built in. See `trainmaster maint lint FILE`.",
    )
    NO_SUCH_COMPONENT = (
        "no-such-component",
        "The catalogue has no component of this name, or none is declared.",
        "Name a component of the catalogue that the fleet file names.",
    )
    NO_SUCH_OPERATION = (
        "no-such-operation",
        "No operation has this id, or it ended so long ago that only the log knows it.",
        "See `trainmaster maint ls`; `trainmaster event tail` has what is older.",
    )
    NO_SUCH_TRAIN = ("no-such-train", "No maintenance train has this name.", "See `trainmaster maint ls trains`.")
    NO_SUCH_ROLLOUT = ("no-such-rollout", "No rollout has this id.", "See `trainmaster maint ls rollouts`.")
    SCOPE_MISMATCH = (
        "scope-mismatch",
        "The work is for another kind of resource, or for other units, than the scope names.",
        "Name resources of the kind that the catalogue states for this work.",
    )
    VERSION_MISSING = (
        "version-missing",
        "An upgrade has to say to which version.",
        "Give the version, in a form that can stand in a command.",
    )
    NO_CONTROLLER = (
        "no-controller",
        "Work without power cannot run on the units that lose it, and their cluster has no controller.",
        'Declare a unit of kind = "controller" in the fleet file.',
    )
    CAPACITY_NEVER = (
        "capacity-never",
        "Planned work could not take so many units at once even if every unit were in service.",
        "Ask for fewer units at once, or allow more of them in [capacity] of the fleet file and restart the server.",
    )
    KEY_TAKEN = (
        "key-taken",
        "The key of the request was used before, for another operation.",
        "Use a new key for each operation, and the same only to ask again for the same.",
    )
    BAD_CATALOGUE = (
        "bad-catalogue",
        "The catalogue has errors, or lacks what is being worked with.",
        "Read `trainmaster maint lint FILE`, correct it, and declare it again.",
    )
    BAD_CAPACITY = (
        "bad-capacity",
        "The limits of capacity contradict each other, or can never hold.",
        "Correct [capacity] of the fleet file as the sentence says.",
    )
    BAD_CONDUCT = token_rows.BAD_CONDUCT
    NO_SUCH_POOL = token_rows.NO_SUCH_POOL
    NO_SUCH_CASE = token_rows.NO_SUCH_CASE
    NO_SUCH_RMA = token_rows.NO_SUCH_RMA
    NO_SUCH_UNIT = token_rows.NO_SUCH_UNIT
    RMA_OPEN = token_rows.RMA_OPEN
    RMA_CLOSED = token_rows.RMA_CLOSED
    ROLLOUT_ACTIVE = (
        "rollout-active",
        "Another version of the component is being rolled out, or the rollout is not in a state for this.",
        "Wait for it, or stop it with `trainmaster maint abort`.",
    )
    JOB_NOT_RUNNING = (
        "job-not-running",
        "The job has no hosts, so nothing on them can be upgraded together.",
        "Ask for operations on the hosts themselves, or wait until the job runs.",
    )
    NAME_TAKEN = (
        "name-taken",
        "A job of this name is still active.",
        "Choose another name, or cancel the active job first.",
    )
    DIRECTORY_TAKEN = token_rows.DIRECTORY_TAKEN
    WORLD_MOVED = (
        "world-moved",
        "The log went on since the plan was made, so the plan may be wrong.",
        "Look at the new plan (--dry-run), then apply that one.",
    )
    MIXED_OUTCOME = (
        "mixed-outcome",
        "The request was carried out for some of its targets and refused or failed for others.",
        "Read the line of each target; repeat the request for the rest.",
    )
    # What ended a job, or keeps it from running until a person acts
    SAME_FAILURE_REPEATED = (
        "same-failure-repeated",
        "The job failed several times in a row with the same signature: the fault is its own, not a host's.",
        "Read the first error with `trainmaster job logs`, correct it, and requeue the job.",
    )
    RESTART_BUDGET_SPENT = (
        "restart-budget-spent",
        "The job failed more often than its restart budget allows within the window.",
        "Read the causes with `trainmaster job show`, correct them, and requeue the job.",
    )
    CANCELLED_BY_REQUEST = ("cancelled-by-request", "A person cancelled it.", "Nothing; ask again if it is wanted.")
    NEVER_FITS = (
        "never-fits",
        "The fleet has fewer hosts of this kind than the job asks for, even if all of them were ready.",
        "Ask for fewer hosts, or add hosts to the fleet.",
    )
    # First causes
    HOST_LOST = (
        "host-lost",
        "A host died, rebooted, or its agent's connection closed and did not come back in time.",
        "Nothing at once: a spare takes over. See `trainmaster host why HOST`.",
    )
    HOST_SILENT = (
        "host-silent",
        "A host is connected but sends no heartbeat for longer than the bound; its state is unknown, so not healthy.",
        "Look at the host: it may hang on storage or memory. See `trainmaster host why HOST`.",
    )
    REPLICAS_DISAGREE = token_rows.REPLICAS_DISAGREE
    RESULT_UNSAVED = token_rows.RESULT_UNSAVED
    RANK_HUNG = token_rows.RANK_HUNG
    WORKER_KILLED = (
        "worker-killed",
        "A worker process was ended by a signal that nobody here sent (often SIGKILL by the out-of-memory killer).",
        "Look at the kernel log of the host for out-of-memory or segmentation faults.",
    )
    WORKER_EXITED = (
        "worker-exited",
        "A worker process ended with an error of its own.",
        "Read its first error with `trainmaster job logs --rank RANK`.",
    )
    STEP_STALLED = (
        "step-stalled",
        "Workers run but no step was completed for longer than the bound.",
        "`trainmaster job diagnose` says who is waited for. Ranks that hang are ended, unless the job file forbids it.",
    )
    HOST_SHUT_DOWN = (
        "host-shut-down",
        "The agents of hosts were ended in order (a shutdown, or `trainmaster down`), and their ranks with them.",
        "Nothing: the job goes on from its newest checkpoint when it has hosts again.",
    )
    PEER_LOST = (
        "peer-lost",
        "A worker failed because another one went away: an echo, not a cause.",
        "Look for the first cause at another rank.",
    )
    PORT_TAKEN = (
        "port-taken",
        "A TCP port that was to be used belongs to another process.",
        "Nothing for a job: another port is taken at the next launch. For the server: choose port 0 or end the other.",
    )
    DISK_FULL = (
        "disk-full",
        "A write failed for lack of space (bytes or inodes).",
        "Free space at the path that the sentence names, or lower the number of checkpoints kept.",
    )
    SAVE_FAILED = (
        "save-failed",
        "The newest save of a checkpoint failed. The job trains on; what it has done since the last one is at risk.",
        "Read the sentence, and free space or repair the storage that it names; the next save tries again by itself.",
    )
    CHECKPOINT_TORN = (
        "checkpoint-torn",
        "A checkpoint is incomplete or does not match its checksums; it is never loaded.",
        "Nothing: an older one is used. Look at storage if it happens again.",
    )
    CHECKPOINT_OLDER_USED = (
        "checkpoint-older-used",
        "The job resumed from a checkpoint that is not the newest published one, because newer ones did not verify.",
        "Note the lost steps; see `trainmaster job show` for what failed to verify.",
    )
    PRELOAD_FAILED = token_rows.PRELOAD_FAILED
    AGENT_AWAY = token_rows.AGENT_AWAY
    # Why a host takes no work
    NO_FAULT_FOUND = offender_rows.NO_FAULT_FOUND
    PART_OFFENDS = offender_rows.PART_OFFENDS
    SLOT_OFFENDS = offender_rows.SLOT_OFFENDS
    HOST_OFFENDS = offender_rows.HOST_OFFENDS
    PLACE_OFFENDS = offender_rows.PLACE_OFFENDS
    LEMON = offender_rows.LEMON
    VERIFICATION_FAILED = (
        "verification-failed",
        "A host failed a verification task and stays out.",
        "See `trainmaster host why HOST` for the task; repair, then resume the host.",
    )
    DRAINED = (
        "drained",
        "A person or a policy holds the host out of work.",
        "`trainmaster host resume HOST` lifts your own hold; others lift theirs.",
    )
    DEADLINE_PASSED = (
        "deadline-passed",
        "Something took longer than it may, and was treated as failed.",
        "See `trainmaster host history`, `trainmaster job show` or `trainmaster maint show` for the step that hung.",
    )
    # Why a job waits
    NOT_ENOUGH_HOSTS = (
        "not-enough-hosts",
        "Fewer hosts are ready and free than the job asks for.",
        "Wait, ask for fewer hosts, or bring hosts back; the numbers say what excluded the others.",
    )
    MIXED_VERSIONS = (
        "mixed-versions",
        "Enough hosts are free, but they do not agree on the versions that the hosts of one job must share.",
        "Wait until the train has brought them together, or ask for fewer hosts.",
    )
    HOSTS_UNKNOWN = (
        "hosts-unknown",
        "Hosts are expected but were not heard of yet, or not lately; unknown is not free.",
        "Start their agents, or look at `trainmaster host ls`.",
    )
    HOSTS_DRAINING = (
        "hosts-draining",
        "Hosts are being drained or are out.",
        "See `trainmaster host ls` for who holds them and why.",
    )
    SPARE_MISSING = (
        "spare-missing",
        "The job runs, or could, but with fewer spares than it asks for.",
        "Bring hosts back, or lower `spares`; the next host loss may have to wait.",
    )
    HELD_BY_OTHER = (
        "held-by-other",
        "Hosts are used by other jobs.",
        "Wait, or raise the priority; `trainmaster job ls` shows who runs.",
    )
    AHEAD_IN_QUEUE = (
        "ahead-in-queue",
        "Other jobs come first: a higher priority, or an earlier submission.",
        "Wait, or raise the priority.",
    )
    HOSTS_VERIFYING = (
        "hosts-verifying",
        "Hosts are being verified before they take work.",
        "Wait; verification has a deadline.",
    )
    VERIFICATION_PENDING = (
        "verification-pending",
        "The host must pass its verification tasks before it is ready.",
        "Wait; see `trainmaster host show HOST`.",
    )
    WAITING_FOR_CHECKPOINT = (
        "waiting-for-checkpoint",
        "The job was asked to save before it moves, and has not finished saving.",
        "Wait; the deadline of the job file (yield_deadline_s) ends the wait.",
    )
    WAITING_FOR_AGENTS = (
        "waiting-for-agents",
        "Agents were asked to do something and have not reported the outcome yet.",
        "Wait; an agent that stays silent is treated as lost.",
    )
    # Why planned work may not take capacity
    GUARANTEE_BROKEN = (
        "guarantee-broken",
        "Fewer units would be left in service than are guaranteed to a tenant or a pool.",
        "Wait until units are back, ask for fewer at once, or lower the guarantee; see the numbers.",
    )
    MAINTENANCE_BUFFER_SPENT = (
        "maintenance-buffer-spent",
        "Planned work has, or was promised, as many units as it may have at once.",
        "Wait until units are back, or ask for fewer at once.",
    )
    FAILURE_BUFFER_SPENT = (
        "failure-buffer-spent",
        "More units have failed than the failure buffer allows: no planned work starts and trains stop by themselves.",
        "Repair and return failed units; returning is always allowed.",
    )
    DOMAIN_CAP = (
        "domain-cap",
        "Planned work has, or was promised, as many units of one place (a row, a rack) as it may have at once.",
        "Wait until units of that place are back, or ask for fewer of them at once.",
    )
    # What an operation of maintenance waits on, or why it ended
    WAITS_FOR_OPERATION = (
        "waits-for-operation",
        "Another operation must be done before this one.",
        "Wait, or see `trainmaster maint show` for the one that is waited for.",
    )
    NOT_BEFORE = ("not-before", "The operation was asked for a later time.", "Wait.")
    UNIT_FAILED = (
        "unit-failed",
        "A unit that the operation needs has failed, or has not come yet.",
        "Repair it; the operation goes on by itself when the unit is back.",
    )
    IN_LINE = (
        "in-line",
        "Other operations wait for the same capacity and come first.",
        "Wait; places in line are fixed by class, age and deadline.",
    )
    JOB_PROTECTED = (
        "job-protected",
        "The contract of a job on the unit forbids planned work for now.",
        "Wait, or ask as an emergency.",
    )
    JOB_ENDS_SOON = ("job-ends-soon", "A job on the unit should end soon, and is let to its end.", "Wait.")
    NO_REPLACEMENT = (
        "no-replacement",
        "A job would lose hosts, and not enough spare or free ones are there to replace them.",
        "Bring hosts back, give the job spares, or wait until another job ends.",
    )
    REPLACEMENT_PROMISED = (
        "replacement-promised",
        "A job would lose hosts, and those that could replace them are promised to hosts that leave already.",
        "Wait: it goes on when those have been replaced.",
    )
    NOTICE_GIVEN = (
        "notice-given",
        "The job was told and moves after its next checkpoint, or when the wait is over.",
        "Wait.",
    )
    UNITS_LEAVING = (
        "units-leaving",
        "Units of the operation are still leaving production.",
        "Wait; see `trainmaster host why HOST` for what runs there.",
    )
    RESOURCE_BUSY = (
        "resource-busy",
        "Another operation works on a resource that this one needs, or comes first there.",
        "Wait; the sentence says who.",
    )
    TRAIN_PAUSED = (
        "train-paused",
        "The maintenance train that the operation belongs to is paused.",
        "`trainmaster maint resume TRAIN` lets it go on.",
    )
    PREDECESSOR_FAILED = (
        "predecessor-failed",
        "Something that had to be done before was not done.",
        "See why the other operation ended, then request this one again.",
    )
    STEPS_FAILED = (
        "steps-failed",
        "Steps of the operation failed, or the version that they should bring was not observed afterwards.",
        "Read the sentence and the output on the unit; what could be undone was undone.",
    )
    UNDO_FAILED = (
        "undo-failed",
        "An operation failed or was taken back, and what it had done could not be undone: nobody knows what is there.",
        "Look at the unit and at the output of the undo; then `trainmaster host resume HOST --owner policy:undo/OP`.",
    )
    VERSIONS_CLASH = (
        "versions-clash",
        "A rule of the catalogue says that these versions do not go together on one unit.",
        "Bring the other component first, or both in one visit; see the rules in the catalogue.",
    )
    STOP_OVER = (
        "stop-over",
        "The time of a stop or of a cycle was over before the unit's turn came.",
        "Nothing: it is carried over to the next stop; see `trainmaster maint show TRAIN` if it happens again.",
    )
    UNIT_LOST = (
        "unit-lost",
        "The unit was lost while the operation was under way, or did not come back after it.",
        "See `trainmaster host why HOST`; the unit waits for repair.",
    )
    # Rollouts
    VERSION_REJECTED = token_rows.VERSION_REJECTED
    ROLLOUT_STOPPED = token_rows.ROLLOUT_STOPPED
    STAGE_OVERDUE = token_rows.STAGE_OVERDUE
    ROLLOUT_PAUSED = token_rows.ROLLOUT_PAUSED
    STAGE_FAILED = token_rows.STAGE_FAILED
    STAGE_HOLDS = token_rows.STAGE_HOLDS
    ROLLOUT_RESUMED = token_rows.ROLLOUT_RESUMED
    GANG_UPGRADE = token_rows.GANG_UPGRADE
    STAGE_PASSED = token_rows.STAGE_PASSED
    # Health
    HEALTH_OBSERVES = token_rows.HEALTH_OBSERVES
    BREAKER_TRIPPED = token_rows.BREAKER_TRIPPED
    REMEDY_RUNS = token_rows.REMEDY_RUNS
    LOOKS_AGAIN = token_rows.LOOKS_AGAIN
    HOST_AWAY = token_rows.HOST_AWAY
    WANTS_TRIAGE = token_rows.WANTS_TRIAGE
    WANTS_RMA = token_rows.WANTS_RMA
    WANTS_CONFIG = token_rows.WANTS_CONFIG
    # The service itself
    SERVER_UNREACHABLE = (
        "server-unreachable",
        "No server answers at this address, or not in time.",
        "Start it with `trainmaster up`, or give --server; `trainmaster config show --origin` says where it came from.",
    )
    LOG_LOCKED = (
        "log-locked",
        "Another server has the event log open; there is one writer at a time.",
        "Use the running server, or end it first.",
    )
    REGISTER_FIRST = (
        "register-first",
        "The agent's session is not, or no longer, registered with this server.",
        "Nothing: the agent registers again by itself. If it keeps happening, two agents run under one host's name.",
    )
    SERVER_FAULT = (
        "server-fault",
        "The server met an error of its own; the request was not carried out, or its outcome is unknown.",
        "Look the incident number up in the server's log file, and report it.",
    )
    STALE_LEASE = (
        "stale-lease",
        "The sender's lease is older than one seen before: it was replaced and must not act any more.",
        "Nothing: the newer server carries on. End the old one if it still runs.",
    )
    # How things are, where nothing is wrong
    ALREADY_ENDED = (
        "already-ended",
        "The job has ended; nothing of it runs that could be stopped or looked at.",
        "See `trainmaster job show`; `trainmaster job requeue` starts it again.",
    )
    MAINTENANCE_ENDED = (
        "maintenance-ended",
        "The operation, train or rollout has ended, or is past what can be taken back.",
        "See how it ended with `trainmaster maint show`; then ask for it, or declare it, anew.",
    )
    ALREADY_QUEUED = ("already-queued", "The job waits in the queue already.", "See `trainmaster job why`.")
    EFFECT_FAILED = (
        "effect-failed",
        "A host could not do its part in launching the ranks.",
        "Read the sentence: a wrong module or command is the job's, a full disk or a broken host is the host's.",
    )
    HOSTS_EXPECTED = (
        "hosts-expected",
        "The fleet file names the host, but its agent has not registered yet.",
        "Start its agent with `trainmaster agent run`.",
    )
    HELD = (
        "held",
        "Somebody keeps the host out of work; the sentence names who and why.",
        "The owner lifts the hold with `trainmaster host resume`.",
    )
    UNDECIDED = (
        "undecided",
        "The job was interrupted, and the first cause is not known yet.",
        "Wait a second; it is decided with what is known by then.",
    )
    DRAIN_WITHDRAWN = ("drain-withdrawn", "The drain was taken back before the host had left.", "Nothing.")
    YIELDED = ("yielded", "All ranks saved and left.", "Nothing.")
    REQUEUED = ("requeued", "A person sent the job back to the queue.", "Nothing.")
    RESTART = ("restart", "The job failed and is started again, within its budget.", "Nothing, unless it repeats.")
    PLACED = ("placed", "The job got its hosts.", "Nothing.")
    CASE_CLOSED = token_rows.CASE_CLOSED
    VERIFIED = ("verified", "The host proved that it works.", "Nothing.")
    FINISHED = ("finished", "All ranks ended with success.", "Nothing.")


_PLACES = {token: place for place, token in enumerate(Token)}
