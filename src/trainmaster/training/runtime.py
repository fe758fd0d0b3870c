"""A rank's part in a job: joining, stepping, answering requests, leaving.

The loop belongs to the script; the session sits at the boundary between two steps, where the state is whole. There all
ranks agree, with one collective of two integers, whether anyone was asked to save or to yield, so that a request that
reaches the boards at slightly different moments leads to one save at one step. A signal handler (the usual way) acts in
the middle of a step, on one rank.

Leaving is where synchronous jobs like to die: a rank that tears its process group down while others still use it, or a
destructor that aborts after the work is done and turns a success into a failure. So the ranks meet, confirm through the
store that all have left the last collective, and leave by `os._exit(0)`, with no destructor run. When an exception
propagates there is no collective at all: the others may be anywhere.
"""

import gc
import math
import mmap
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

import torch
import torch.distributed as dist

from trainmaster.core.agent.board import SIZE, Board, Phase, Request
from trainmaster.core.agent.ring import Slow
from trainmaster.core.checkpoint.position import Position, proceed
from trainmaster.core.checkpoint.space import UNSAVED
from trainmaster.storage.directory import OwnerMark
from trainmaster.training import agreed, distrust, metrics
from trainmaster.training.agreement import maxima
from trainmaster.training.checkpoint_io import Checkpoints
from trainmaster.training.distrust import Distrust
from trainmaster.training.errors import NoRoom, SaveFailed, TrainingError
from trainmaster.training.keeping import Keeping
from trainmaster.training.lasting import pause, pauses
from trainmaster.training.meeting import form_group, part
from trainmaster.training.recorder import Recorder, record
from trainmaster.training.replicas import EVERY_STEPS, Replicas
from trainmaster.training.restoring import restore
from trainmaster.training.stacks import answer_for_stacks
from trainmaster.training.surroundings import Surroundings, read

_DEFAULT_KEEP: Final = 3


def open_session(
    checkpoint_dir: Path | None,
    every_steps: int | None,
    keep: int | None,
    agreement: int | None = None,
    stays: bool = False,
) -> "Session":
    """See `trainmaster.training.session`. `stays`: a yield ends the session and not the process."""
    here = read(os.environ, socket.gethostname())
    here = here.but(
        checkpoint_dir=here.checkpoint_dir or checkpoint_dir,
        checkpoint_every_steps=here.checkpoint_every_steps or every_steps,
        checkpoint_keep=here.checkpoint_keep or keep or _DEFAULT_KEEP,
        agreement_every_steps=here.agreement_every_steps if here.agreement_every_steps is not None else agreement,
    )
    board = open_board(here.board)
    board.put("attached_at", _now())
    _advance(board, Phase.ATTACHED)
    store = form_group(here)
    board.put("grouped_at", _now())
    _advance(board, Phase.GROUPED)
    answer_for_stacks(here.board)
    return Session(here, board, store, record(here.board, here.rank, here.world), stays)


def record_only() -> None:
    """See `trainmaster.training.record`."""
    here = read(os.environ, socket.gethostname())
    if here.board is None:
        return
    if not dist.is_initialized():
        raise TrainingError("call record() after torch.distributed.init_process_group(...)")
    answer_for_stacks(here.board)
    recorder = record(here.board, dist.get_rank(), dist.get_world_size())
    if recorder is not None:
        recorder.mark(Slow.NONE)


class Session:
    """Made by `trainmaster.training.session`. Every method but `report`, `tell`, `waited_for_data` and the properties
    is a collective."""

    def __init__(
        self, here: Surroundings, board: Board, store: dist.Store, recorder: Recorder | None, stays: bool
    ) -> None:
        self._here = here
        self._stays = stays
        self._recorder = recorder
        self._board = board
        self._store = store
        self._step = 0
        self._samples = 0
        self._global_batch = 0
        self._numerics = ""
        self._loss = math.nan
        self._restored_step = 0
        self._saved_step = self._tried_step = -1
        self._lacks_room = False  # for the newest save
        self._told_every_steps = 0
        self._stall_s = 0.0  # of the steps, by the newest save that is made from a snapshot
        self._failed_stores = 0
        self._seen_request = 0  # the page is fresh, so a request that came while we started is still to be answered
        self._seen_checkpoint = 0
        self._yielded = False
        self._model: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._metrics = _metrics_writer(here)
        self._checkpoints = _checkpoints(here)
        self._replicas = _replicas(here, self._tell)
        self._keeping = Keeping(here, self._tell)

    @property
    def rank(self) -> int:
        return self._here.rank

    @property
    def world(self) -> int:
        return self._here.world

    @property
    def samples(self) -> int:
        """Global samples consumed so far, which is the index of the next one."""
        return self._samples

    @property
    def yielded(self) -> bool:
        """Whether the loop ended because the job was asked to yield."""
        return self._yielded

    @property
    def phase_reached(self) -> Phase:
        return Phase(self._board.integer("phase"))

    @property
    def asked(self) -> bool:
        """Whether somebody asked for something that is answered at the end of this step."""
        return self._board.integer("request_number") > self._seen_request

    def restore(
        self, *, model: torch.nn.Module, optimizer: torch.optim.Optimizer, global_batch: int = 0, numerics: str = ""
    ) -> int:
        """Loads the newest checkpoint that verifies and returns its step; 0 if there is none.

        `global_batch` (samples a step over all ranks) and `numerics` (a name of the arithmetic) let the session warn if
        they changed since the checkpoint.
        Raises `TrainingError` on all ranks if checkpoints exist and none can be used.
        """
        self._model, self._optimizer, self._numerics = model, optimizer, numerics
        restored = restore(self._here, self._checkpoints, model, optimizer)
        if restored is not None:
            self._step = self._restored_step = restored.step
            self._saved_step = self._tried_step = restored.published_step
            self._samples = restored.position.samples
            self._global_batch = restored.position.global_batch
            batch = global_batch or self._global_batch or 1
            for warning in proceed(restored.position, self.world, batch, numerics).warnings:
                self._tell(warning.sentence)
            if self._checkpoints is not None and self.rank == 0:
                for sentence in self._checkpoints.tidy(self._step, self._here.checkpoint_every_steps or 1):
                    self._tell(sentence)
            self._tell(restored.sentence)
            self._board.put("published_step", restored.published_step)
            self._board.put("origin", restored.origin)
        self._replicas.watch(model, optimizer, self._step)
        if self._recorder is not None:
            self._recorder.mode.watch(model)
        self._board.put("restored_step", self._step)
        self._board.put("step", self._step)
        self._board.put("samples", self._samples)
        self._board.put("restored_at", _now())
        _advance(self._board, Phase.RESTORED)
        return self._step

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are left of `total`, counted from 1. Saves and yields between them."""
        if self._model is None:
            raise TrainingError("call session.restore(model=..., optimizer=...) before session.steps(...)")
        if self._step < total:
            self._answer_requests(total)
        while self._step < total and not self._yielded:
            started = time.monotonic()
            yield self._step + 1
            self._complete_step(time.monotonic() - started)
            self._replicas.check(self._step, saving=False)
            self._answer_requests(total)

    @contextmanager
    def phase(self, name: Literal["evaluation", "compile", "other"]) -> Iterator[None]:
        """Says that what the block does takes long by nature, so that it is not taken for a hang."""
        with self._recorder.phase(Slow[name.upper()]) if self._recorder else nullcontext():
            yield

    def report(self, step: int, *, loss: float, samples: int) -> None:
        """Tells the loss of the current step (the global one, equal on all ranks) and the global samples so far."""
        assert step == self._step + 1, (step, self._step)
        self._global_batch = samples - self._samples
        self._loss, self._samples = float(loss), samples

    def waited_for_data(self, waited_s: float) -> None:
        """Tells how long the present step waited for its data, so that a slow loader can be named."""
        if self._recorder is not None:
            self._recorder.waited_for_data(round(waited_s * 1e6))

    @property
    def attempt(self) -> str:
        return self._here.attempt

    @property
    def host_dir(self) -> Path:
        """What the ranks of this host share in memory, for this attempt; outside of Trainmaster, for all of a user."""
        board = self._here.board
        if board is None:
            return Path(f"/dev/shm/trainmaster-{os.getuid()}")
        return board.parent.parent if board.parent.name.startswith("epoch-") else board.parent

    def tell(self, sentence: str) -> None:
        """Tells the agent, and whoever reads rank 0's standard error, a sentence. Empty ones are not told."""
        self._tell(sentence)

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is not None:
            self._keeping.close()
            self._tell(f"{type(error).__name__}: {error}".splitlines()[0])
            return False
        if self._keeping.storing_step == self._step:
            self._keeping.see_stored(maxima(*self._keeping.wait_stored()))
            self._note_stored()
        if not self._yielded and self._step > max(self._saved_step, 0):
            self._save_last()
            if self._checkpoints is not None and self._saved_step != self._step:
                why = UNSAVED if self._lacks_room else "all steps are done, but their result is not saved"
                raise TrainingError(f"{why}: {self._board.note()}")
        self._leave(Phase.YIELDED if self._yielded else Phase.FINISHED)
        return False

    def _complete_step(self, step_s: float) -> None:
        self._step += 1
        now = _now()
        board = self._board
        board.put("step", self._step)
        board.put("step_at", now)
        board.put("step_s", step_s)
        board.put("loss", self._loss)
        board.put("samples", self._samples)
        if board.integer("first_step_at") == 0:
            board.put("first_step_at", now)
        _advance(board, Phase.TRAINING)
        if self._recorder is not None:
            self._recorder.completed(self._step)
        if self._metrics is not None:
            self._write_metrics(self._metrics, now / 1e6, step_s)

    def _write_metrics(self, writer: metrics.Writer, time_s: float, step_s: float) -> None:
        line = metrics.Line(
            step=self._step,
            loss=self._loss if math.isfinite(self._loss) else None,
            loss_hex=self._loss.hex(),
            time_s=time_s,
            samples=self._samples,
            step_s=step_s,
        )
        try:
            writer.write(line)
        except OSError as error:
            self._tell(f"the metrics of step {self._step} are lost: {error}")

    def _answer_requests(self, total: int) -> None:
        """Agrees on what the boards ask and where snapshots are, and saves if asked or due; a state that is saved is
        not saved again. Storage is written from a snapshot where it can be, but for the last state of a session."""
        number = self._board.integer("request_number")
        request = Request(self._board.integer("request")) if number > self._seen_request else Request.NONE
        checkpoint = number if request == Request.CHECKPOINT else 0
        started = time.monotonic()
        words = self._keeping.words(hurry=self._is_due())
        asked, leave, self._told_every_steps, *agreed = maxima(
            checkpoint, int(request == Request.YIELD), self._board.integer("every_steps"), *words
        )
        self._seen_request = max(self._seen_request, number)
        wanted = (self._is_due() or asked > self._seen_checkpoint) and self._saved_step != self._step
        last = leave or self._step >= total
        if (wanted and (last or not self._keeping.stores)) or (leave and self._saved_step != self._step):
            self._save_last() if leave and self._step < total else self._save()
        elif wanted:
            self._replicas.check(self._step, saving=True)
            self._keeping.want_store()
            self._tried_step = self._step
        if not last:
            self._keep(agreed)
            self._stall_s = time.monotonic() - started if self._tried_step == self._step else self._stall_s
        self._seen_checkpoint = max(self._seen_checkpoint, asked)
        if leave and self._step < total:
            self._yielded = self._saved_step == self._step
            if not self._yielded:
                self._tell(
                    f"asked to yield at step {self._step}, but nothing is saved: training goes on; {self._board.note()}"
                )

    def _is_due(self) -> bool:
        """So many steps after the last try, if the agents told how many (the greatest number that any rank was told, so
        all agree); else at the steps that the environment names."""
        if self._told_every_steps > 0:
            return self._step - max(self._tried_step, 0) >= self._told_every_steps
        every = self._here.checkpoint_every_steps
        return every is not None and self._step > 0 and self._step % every == 0

    def _keep(self, agreed: list[int]) -> None:
        """Begins a snapshot, or goes on with what was begun."""
        assert self._model is not None
        assert self._optimizer is not None
        self._keeping.go_on(agreed, self._position(), self._model, self._optimizer, self._restored_step)
        self._note_stored()

    def _note_stored(self) -> None:
        """What the vault says of storage, on the board."""
        keeping, board = self._keeping, self._board
        if keeping.failed_stores > self._failed_stores:
            more, self._failed_stores = keeping.failed_stores - self._failed_stores, keeping.failed_stores
            self._tell_failed(f"a save from a snapshot failed: {keeping.note()}", more)
        if keeping.stored_step > max(self._saved_step, self._restored_step):
            self._saved_step = keeping.stored_step
            board.put("published_step", keeping.stored_step)
            board.put("last_save_s", self._stall_s)
            board.put("last_lag_s", keeping.lag_s)
            board.publish()

    def _position(self) -> Position:
        return Position(
            samples=self._samples, global_batch=self._global_batch, step=self._step, numerics=self._numerics
        )

    def _save_last(self) -> None:
        """Saves a state that nobody will save later: where there is no room, all stay and try again."""
        for pause_s, again in pauses(self._here.room_wait_s):
            self._save(again)
            if not self._lacks_room:
                return
            _advance(self._board, Phase.SAVING)
            with self._recorder.phase(Slow.SAVE) if self._recorder else nullcontext():
                pause(pause_s)
        self._save()

    def _save(self, again: str = "") -> None:
        """`again`: what is said of the next try, if there is no room."""
        if self._checkpoints is None:
            return
        self._replicas.check(self._step, saving=True)
        assert self._model is not None
        assert self._optimizer is not None
        with self._recorder.phase(Slow.SAVE) if self._recorder else nullcontext():
            self._save_now(self._checkpoints, self._model, self._optimizer, again)

    def _save_now(
        self, checkpoints: Checkpoints, model: torch.nn.Module, optimizer: torch.optim.Optimizer, again: str
    ) -> None:
        started, self._lacks_room = time.monotonic(), False
        self._tried_step = self._step
        _advance(self._board, Phase.SAVING)
        try:
            saved = checkpoints.save(model, optimizer, self._position())
        except SaveFailed as failure:
            self._lacks_room = isinstance(failure, NoRoom)
            self._tell_failed(f"the save of step {self._step} failed: {failure}{again if self._lacks_room else ''}", 1)
        else:
            self._saved_step = saved.step
            self._board.put("last_save_s", time.monotonic() - started)
            self._board.put("last_lag_s", 0.0)
            self._board.put("published_step", saved.step)
            self._tell(saved.complaint)
        self._board.put("save_s", float(self._board.get("save_s")) + time.monotonic() - started)
        _advance(self._board, Phase.TRAINING)

    def _leave(self, phase: Phase) -> None:
        """Leaves the job together with the others and ends the process with exit code 0."""
        self._keeping.close()
        self._model = self._optimizer = None
        gc.collect()
        dist.barrier()
        _advance(self._board, phase)
        part(self._store, self.rank, self.world)
        sys.stdout.flush()
        sys.stderr.flush()
        if phase is not Phase.YIELDED or not self._stays:
            os._exit(0)

    def abandon(self) -> None:
        """Lets go of what belongs to this membership, without a word to anybody. The session is of no use then."""
        self._model = self._optimizer = None
        if self._recorder is not None:
            self._recorder.close()
        if self._metrics is not None:
            self._metrics.close()

    def _tell_failed(self, sentence: str, more: int) -> None:
        """So many more saves failed. Whoever sees the number go up reads the note next, so the note comes first."""
        self._tell(sentence)
        self._board.put("failed_saves", self._board.integer("failed_saves") + more)
        self._board.publish()

    def speaks_by(self, speak: Callable[[BaseException], None]) -> None:
        """How an error of this rank is told before it is raised."""
        self._replicas.speak = speak

    def _tell(self, sentence: str) -> None:
        """A note on the board, and a line on rank 0's standard error; nothing for an empty sentence."""
        if not sentence:
            return
        self._board.put_note(sentence)
        self._board.publish()
        if self.rank == 0:
            print(f"trainmaster: {sentence}", file=sys.stderr, flush=True)


def open_board(path: Path | None) -> Board:
    """The agent's page; a page of our own, which nobody reads, if there is no agent."""
    if path is None:
        own = Board(memoryview(bytearray(SIZE)))
        own.clear()
        return own
    try:
        with path.open("r+b") as stream:
            board = Board(memoryview(mmap.mmap(stream.fileno(), SIZE)))
    except (OSError, ValueError) as error:
        raise TrainingError(f"the board {path} cannot be mapped ({error}); the agent must make it first") from error
    if not board.is_valid():
        raise TrainingError(f"{path} is not a board of this version; the agent and the job must use one version")
    return board


def _checkpoints(here: Surroundings) -> Checkpoints | None:
    if here.checkpoint_dir is None:
        return None
    assert here.checkpoint_keep is not None
    mark = OwnerMark(job=here.owner, attempt=here.attempt_number(), epoch=here.epoch)
    doubts = distrust.noted(here.job_dir)
    return Checkpoints(here.checkpoint_dir, mark, here.attempt, here.checkpoint_keep, doubts, here.began_step)


def _replicas(here: Surroundings, tell: Callable[[str], None]) -> Replicas:
    every = here.agreement_every_steps

    def distrusted(agreed_step: int) -> None:
        distrust.note(here.job_dir, Distrust(attempt=here.attempt, epoch=here.epoch, after_step=agreed_step))

    def told(names: frozenset[str]) -> None:
        try:
            agreed.note(here.job_dir, here.attempt, names)
        except OSError as error:
            tell(f"which tensors agree is not kept for a later membership: {error}")

    before = agreed.noted(here.job_dir, here.attempt) if here.rank == 0 else frozenset()
    cadence = EVERY_STEPS if every is None else every
    return Replicas(cadence, every is not None, here.host, tell, distrusted, before, told)


def _metrics_writer(here: Surroundings) -> metrics.Writer | None:
    if here.job_dir is None or here.rank != 0:
        return None
    here.job_dir.mkdir(parents=True, exist_ok=True)
    return metrics.Writer(metrics.path_of(here.job_dir, here.attempt, here.epoch))


def _advance(board: Board, phase: Phase) -> None:
    board.put("phase", int(phase))
    board.publish()


def _now() -> int:
    """Microseconds since 1970 (UTC)."""
    return time.time_ns() // 1000
