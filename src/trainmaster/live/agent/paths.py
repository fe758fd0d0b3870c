"""Where an agent keeps things.

Three places with three lives. The *host directory* (a disk of the host) holds the journal, the logs and the markers of
operations, and survives everything but the loss of the disk. The *memory directory* (a memory file system) holds what
belongs to one boot: the boot id, boards, exit records, sockets of keepers, reports that wait. It goes with a reboot, as
the processes do, and does not care about a full disk. The *jobs directory* is shared by all hosts.

Sockets lie in the memory directory also because its path is short: a socket's path may have only 107 bytes.
"""

from pathlib import Path

from trainmaster.core.agent.vault_talk import ARENA_PREFIX, SOCKET_NAME
from trainmaster.core.base.ids import AttemptId, EffectId, JobId, OperationId
from trainmaster.core.base.value import Value


class HostPaths(Value):
    host_dir: str
    memory_dir: str
    jobs_dir: str

    @property
    def boot(self) -> Path:
        return Path(self.memory_dir, "boot")

    @property
    def outbox(self) -> Path:
        return Path(self.memory_dir, "outbox.jsonl")

    @property
    def health_told(self) -> Path:
        """What the server was told of the health of this host in this boot."""
        return Path(self.memory_dir, "health-told.json")

    @property
    def health_memory(self) -> Path:
        """Parts and ports that were seen on this host before; a reboot does not make them forgotten."""
        return Path(self.host_dir, "health-memory.json")

    @property
    def log_place(self) -> Path:
        """How far the kernel's log was read; on disk, so that a new boot is told from a first start."""
        return Path(self.host_dir, "kernel-log.json")

    @property
    def journal(self) -> Path:
        return Path(self.host_dir, "journal.jsonl")

    @property
    def attempts(self) -> Path:
        return Path(self.memory_dir, "attempts")

    def attempt(self, attempt: AttemptId) -> Path:
        return self.attempts / attempt

    def prepared(self, attempt: AttemptId) -> Path:
        return self.attempt(attempt) / "prepared.json"

    def keeper_spec(self, attempt: AttemptId) -> Path:
        return self.attempt(attempt) / "spec.json"

    def keeper(self, attempt: AttemptId) -> Path:
        return self.attempt(attempt) / "keeper.json"

    def socket(self, attempt: AttemptId) -> Path:
        return self.attempt(attempt) / "keeper.sock"

    def memory(self, attempt: AttemptId) -> Path:
        """Snapshots and what belongs to them; see `core/agent/vault_talk.py`."""
        return self.attempt(attempt) / "memory"

    def arena(self, attempt: AttemptId, rank: int) -> Path:
        return self.memory(attempt) / f"{ARENA_PREFIX}{rank}"

    def vault_socket(self, attempt: AttemptId) -> Path:
        return self.memory(attempt) / SOCKET_NAME

    def epoch(self, attempt: AttemptId, epoch: int) -> Path:
        return self.attempt(attempt) / f"epoch-{epoch}"

    def board(self, attempt: AttemptId, epoch: int, rank: int) -> Path:
        return self.epoch(attempt, epoch) / f"board-{rank}"

    def ring(self, attempt: AttemptId, epoch: int, rank: int) -> Path:
        """Of the recorder; there is one if the script opened a training session."""
        return self.epoch(attempt, epoch) / f"ring-{rank}"

    def stacks(self, attempt: AttemptId, epoch: int, rank: int) -> Path:
        """Where the rank writes its stacks when it is asked."""
        return self.epoch(attempt, epoch) / f"stacks-{rank}"

    def exit_record(self, attempt: AttemptId, epoch: int, rank: int) -> Path:
        return self.epoch(attempt, epoch) / f"exit-{rank}.json"

    def error_record(self, attempt: AttemptId, epoch: int, rank: int) -> Path:
        return self.epoch(attempt, epoch) / f"error-{rank}.json"

    def logs(self, attempt: AttemptId) -> Path:
        return Path(self.host_dir, "logs", attempt)

    def log(self, attempt: AttemptId, epoch: int, rank: int) -> Path:
        return self.logs(attempt) / f"epoch-{epoch}-rank-{rank}.log"

    def standby_log(self, attempt: AttemptId, index: int) -> Path:
        """What a worker says that was started ahead, before it has a rank."""
        return self.logs(attempt) / f"standby-{index}.log"

    def keeper_log(self, attempt: AttemptId) -> Path:
        return self.logs(attempt) / "keeper.log"

    @property
    def operations(self) -> Path:
        return Path(self.host_dir, "operations")

    def row(self, operation: OperationId, leg: str, effect: EffectId) -> Path:
        """Markers and output of a row of steps."""
        return self.operations / operation / f"{leg}-{effect}"

    @property
    def reboot(self) -> Path:
        return Path(self.host_dir, "reboot.json")

    @property
    def reboot_log(self) -> Path:
        return Path(self.host_dir, "reboot.log")

    def job_dir(self, job: JobId) -> Path:
        return Path(self.jobs_dir, job)
