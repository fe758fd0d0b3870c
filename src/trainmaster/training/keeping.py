"""When a session takes snapshots, and what becomes of them.

After each step the ranks agree on a few numbers in the collective that they need anyway (`words`, `go_on`). If the last
snapshot is whole on all of them, and a peer has it where it should, each begins the next one, which is copied while the
next step computes; the optimizer waits for it. So all take the same steps, and at every moment there is one that is
whole everywhere. Nobody waits for a peer or for storage: a step that finds the last snapshot under way takes none.

The vault of the host (`core/agent/vault_talk.py`) copies snapshots to a peer and writes them to storage. It answers in
the header of the arena, which `words` reads. Where it is missing, or falls silent, snapshots stay in this host's memory
and the session saves by itself, as it does at the end and before it yields.

What is to be copied is planned after the first step of an epoch, and the memory made by a thread beside the next ones,
since neither may lengthen a recovery. A state that can't be copied where it is, and memory that is not there, is said
once; then the job does without. One that changes while it is copied is copied before the next step begins instead.

Limit: a step at which storage is due waits for the snapshot before it (`HURRY_S`), so that what is stored is that step.
"""

import contextlib
import errno
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import torch

from trainmaster.core.agent.vault_talk import ARENA_PREFIX, PLACE_NAME, Announce, Peers, Place, ToVault
from trainmaster.core.base.value import decode, encode
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage.arena import BEFORE, Arena, before
from trainmaster.training.agreement import gather
from trainmaster.training.errors import TrainingError
from trainmaster.training.snapshot import Changed, Exchanged, Snapshotter
from trainmaster.training.surroundings import Surroundings

HURRY_S: Final = 10.0
PATIENCE_S: Final = 900.0
"""A vault that answers nothing for so long is done without; it gives up by itself long before."""
_LOOK_S: Final = 0.001
_PLANS_LIMIT: Final = 4
_EXCHANGED, _CHANGED, _UNUSABLE = 1, 2, 3
WORDS: Final = 6


class Keeping:
    """The snapshots of one membership. `tell` says a sentence to people. All methods are called by all ranks alike."""

    def __init__(self, here: Surroundings, tell: Callable[[str], None]) -> None:
        self._here, self._tell = here, tell
        self._on = here.arena is not None and here.snapshot_every_steps > 0
        self._snapshotter: Snapshotter | None = None
        self._plans = 0
        self._opening: threading.Thread | None = None
        self._overlaps = True
        self._unhook: Callable[[], None] = lambda: None
        self._trouble, self._reason = 0, ""
        self._begun: Announce | None = None
        """The last snapshot; what is to become of it."""
        self._whole_step = -1
        self._copied_step = -(1 << 62)
        self._cleaned = False
        self._vault = _Vault(here) if here.vault is not None else None
        self._stored = self._failed = self._failed_before = 0
        self._store_wanted = False
        self._storing: Announce | None = None
        self._begun_at = self._storing_since = 0.0
        self.lag_s = 0.0
        """From the snapshot that was stored last until it was published."""

    # --- what the session asks ---

    @property
    def stores(self) -> bool:
        """Whether storage is written from snapshots, so that the session need not."""
        return self._on and self._vault is not None and self._vault.met and self._whole_step >= 0

    @property
    def storing_step(self) -> int:
        """The step that is on its way to storage; -1 if none is."""
        return self._storing.step if self._storing is not None else -1

    @property
    def stored_step(self) -> int:
        """The newest step that was published from a snapshot; 0 if there is none."""
        return self._stored

    @property
    def failed_stores(self) -> int:
        """How many of this membership were not published."""
        return self._failed

    def want_store(self) -> None:
        """The next snapshot goes to storage as well."""
        self._store_wanted = True

    def words(self, hurry: bool) -> list[int]:
        """What this rank puts into the maximum over all, after a step. `hurry`: first waits a while, until the last
        snapshot is where it should be."""
        if self._snapshotter is None:
            return [0, 0, self._trouble, 0, 0, 0]
        self.settle()
        deadline = time.monotonic() + (HURRY_S if hurry else 0.0)
        while (self._is_waiting() or self._copying() == 1) and time.monotonic() < deadline and not self._trouble:
            time.sleep(_LOOK_S)
        vault, arena = self._vault, self._arena()
        return [
            int(self._is_waiting()),
            self._copying(),
            self._trouble,
            arena.word("stored_step") if arena is not None else 0,
            self._failed_here(),
            int(vault is not None and vault.has_changed()),
        ]

    def go_on(
        self,
        agreed: list[int],
        position: Position,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        restored_step: int,
    ) -> None:
        """With the maxima of what all ranks said: begins a snapshot, if it is time for one."""
        if not self._on or position.step <= restored_step:
            return
        waiting, copying, trouble, _, _, news = agreed
        self.see_stored(agreed)
        if trouble:
            self._meet_trouble(trouble)
        elif copying > 1:
            self._lose_vault()
        if self._on and self._snapshotter is None:
            self._plan(model, optimizer, self._whole_step if self._whole_step >= 0 else restored_step)
        elif self._on and not trouble:
            if news and self._vault is not None:
                self._vault.meet()
                self._say_again()
            if not waiting:
                self._see_whole()
                if not copying and self._is_due(position.step):
                    self._begin(position)

    def settle(self) -> None:
        """Returns when no copy is under way. The optimizer calls it before it writes."""
        if self._snapshotter is None:
            return
        try:
            self._snapshotter.wait()
        except Changed as error:
            self._note(_CHANGED, str(error))
        except (TrainingError, OSError) as error:
            self._note(_UNUSABLE, str(error))

    def wait_stored(self) -> list[int]:
        """The words of this rank once storage has what is on its way there, or after a long time."""
        deadline = time.monotonic() + PATIENCE_S
        arena, storing = self._arena(), self._storing
        while arena is not None and storing is not None and time.monotonic() < deadline:
            if arena.word("stored_step") >= storing.step or self._failed_here() > self._failed:
                break
            time.sleep(_LOOK_S)
        return self.words(hurry=False)

    def see_stored(self, agreed: list[int]) -> None:
        """Takes note of what all ranks know of storage."""
        self._stored, failed = max(self._stored, agreed[3]), agreed[4]
        storing = self._storing
        if storing is not None and (self._stored >= storing.step or failed > self._failed):
            self._storing = None
            self.lag_s = time.monotonic() - self._storing_since
        self._failed = max(self._failed, failed)

    def note(self) -> str:
        """What the vault last complained of, as far as this host was told."""
        arena = self._arena()
        return arena.note() if arena is not None else ""

    def close(self) -> None:
        """The membership is over. Snapshots stay where they are."""
        self._on = False
        self._drop()
        if self._vault is not None:
            self._vault.close()

    # --- planning ---

    def _plan(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        """All ranks plan together; then each makes its memory, beside the next steps."""
        here = self._here
        assert here.arena is not None
        self._plans += 1
        if self._vault is not None and self._plans == 1:
            self._vault.meet()
            if not self._vault.met:
                self._tell("a host has no vault yet: snapshots stay in its memory, and saves are made by the job")
        try:
            snapshotter = Snapshotter.of(
                here.arena,
                model,
                optimizer,
                owner=(here.job, here.attempt, here.epoch),
                parts=3 if self._vault is not None else 2,
                deferred=True,
            )
        except (TrainingError, OSError) as error:
            self._note(_UNUSABLE, str(error))
            return
        self._snapshotter = snapshotter
        self._unhook = optimizer.register_step_pre_hook(lambda *_: self.settle()).remove
        self._opening = threading.Thread(target=self._open, args=(snapshotter, step), name="trainmaster-arena")
        self._opening.start()

    def _open(self, snapshotter: Snapshotter, step: int) -> None:
        try:
            snapshotter.open()
            arena = snapshotter.arena
            arena.forget_after(step)
            self._failed_before = arena.word("failed_stores") - self._failed
        except (OSError, TrainingError) as error:
            self._note(_UNUSABLE, error.strerror or str(error) if isinstance(error, OSError) else str(error))

    def _drop(self) -> None:
        self.settle()
        self._unhook()
        if self._opening is not None:
            self._opening.join()
        self._snapshotter = self._opening = None
        self._unhook = lambda: None

    def _note(self, trouble: int, reason: str) -> None:
        if trouble > self._trouble:
            self._trouble, self._reason = trouble, reason

    def _meet_trouble(self, trouble: int) -> None:
        """At least one rank has no snapshot of the step of which others may have one."""
        reasons = gather(self._reason)
        reason = next((f"rank {rank}: {reason}" for rank, reason in enumerate(reasons) if reason), "")
        self.settle()
        arena = self._arena()
        if arena is not None and self._whole_step >= 0:
            arena.forget_after(self._whole_step)
        self._trouble, self._reason, self._begun = 0, "", None
        if trouble == _CHANGED and self._overlaps:
            self._overlaps = False
            self._tell(f"snapshots are taken before the next step begins, no longer beside it: {reason}")
        elif trouble == _EXCHANGED and self._plans < _PLANS_LIMIT:
            self._drop()
        else:
            self._tell(f"no snapshots in memory: {reason}")
            self._on = False
            self._drop()

    # --- one snapshot ---

    def _is_waiting(self) -> bool:
        """Whether this rank could not begin one."""
        arena = self._arena()
        return arena is None or not arena.is_free(self._needed())

    def _arena(self) -> Arena | None:
        """Once it is made and was looked at."""
        snapshotter, opening = self._snapshotter, self._opening
        if snapshotter is None or not snapshotter.is_open or (opening is not None and opening.is_alive()):
            return None
        return snapshotter.arena

    def _failed_here(self) -> int:
        arena = self._arena()
        return arena.word("failed_stores") - self._failed_before if arena is not None else 0

    def _needed(self) -> list[int]:
        return [self._storing.sequence] if self._storing is not None else []

    def _copying(self) -> int:
        """1 while the last snapshot is not where it should be; 2 if that has taken too long."""
        if self._vault is None or not self._vault.met:
            return 0
        if self._storing is not None and self._vault.is_silent():
            return 2
        begun, arena = self._begun, self._arena()
        if begun is None or not begun.replicate or arena is None:
            return 0
        if begun.sequence <= max(arena.word("replicated_sequence"), arena.word("given_up_sequence")):
            return 0
        return 2 if self._vault.is_silent() else 1

    def _is_due(self, step: int) -> bool:
        last = self._begun.step if self._begun is not None else self._whole_step
        to_storage = self._store_wanted and self._storing is None and self.stores
        return to_storage or last < 0 or step - last >= self._here.snapshot_every_steps

    def _begin(self, position: Position) -> None:
        snapshotter, vault, every = self._snapshotter, self._vault, self._here.replicate_every_steps
        assert snapshotter is not None
        met = vault is not None and vault.met
        replicate = met and vault is not None and vault.has_peers and 0 < every <= position.step - self._copied_step
        store = met and self._store_wanted and self._storing is None and self._whole_step >= 0
        announce = Announce(
            rank=self._here.rank,
            world=self._here.world,
            epoch=self._here.epoch,
            arena=str(self._here.arena),
            sequence=0,
            step=position.step,
            replicate=replicate,
            store=store,
        )

        def whole(sequence: int) -> None:
            if replicate and vault is not None:
                vault.say(announce.but(sequence=sequence, store=False))

        try:
            sequence = snapshotter.start(position, self._needed(), whole)
        except Exchanged as error:
            self._note(_EXCHANGED, str(error))
            return
        except (TrainingError, OSError) as error:
            self._note(_UNUSABLE, str(error))
            return
        self._begun, self._begun_at = announce.but(sequence=sequence), time.monotonic()
        self._store_wanted = self._store_wanted and not store
        if not self._overlaps:
            self.settle()

    def _see_whole(self) -> None:
        """The last snapshot is whole on all ranks."""
        begun = self._begun
        if begun is None or begun.step == self._whole_step:
            return
        self._whole_step = begun.step
        if begun.replicate:
            self._copied_step = begun.step
        if begun.store and self._vault is not None:
            self._storing, self._storing_since = begun.but(replicate=False), self._begun_at
            self._vault.say(self._storing)
        if not self._cleaned:
            self._cleaned = True
            self._clean()

    def _clean(self) -> None:
        """Removes the snapshots of ranks that are elsewhere now, since there are newer ones."""
        path = self._here.arena
        assert path is not None
        here = [each for host, directory, each in gather((self._here.host, str(path.parent), path.name))
                if (host, directory) == (self._here.host, str(path.parent))]  # fmt: skip
        with contextlib.suppress(FileNotFoundError):
            before(path).unlink()
        if path.name == min(here):
            for other in path.parent.glob(f"{ARENA_PREFIX}*"):
                if other.name.removesuffix(BEFORE) not in here:
                    with contextlib.suppress(FileNotFoundError):
                        other.unlink()

    # --- the vault ---

    def _say_again(self) -> None:
        """A vault was started anew and has forgotten all."""
        assert self._vault is not None
        if self._begun is not None and self._begun.replicate and self._copying() == 1:
            self._vault.say(self._begun.but(store=False))
        if self._storing is not None:
            self._vault.say(self._storing)

    def _lose_vault(self) -> None:
        assert self._vault is not None
        self._vault.met = False
        self._storing = None
        self._tell("a host's vault does not answer: snapshots stay in its memory, and saves are made by the job")


class _Vault:
    """The vault of this host, and who the others are."""

    def __init__(self, here: Surroundings) -> None:
        assert here.vault is not None
        self._here, self._path = here, here.vault
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._unsaid: deque[ToVault] = deque()
        self._stamp = (0, 0)
        self._said_at = time.monotonic()
        self.met = False
        """Every rank has one."""
        self.has_peers = False

    def meet(self) -> None:
        """All ranks tell each other their vaults, and their vaults of it."""
        self._stamp = self._look()
        told = gather(self._place())
        self.met = all(place is not None for place in told)
        places = list(dict.fromkeys(place for place in told if place is not None))
        self.has_peers = len({place.host for place in places}) > 1
        here = self._here
        self.say(
            Peers(
                rank=here.rank,
                world=here.world,
                epoch=here.epoch,
                job=here.owner,
                attempt=here.attempt,
                arena=str(here.arena),
                directory=str(here.checkpoint_dir or ""),
                keep=here.checkpoint_keep or 0,
                places=tuple(places),
                place_of=tuple(places.index(place) if place is not None else -1 for place in told),
            )
        )

    def has_changed(self) -> bool:
        """Whether it was started anew. Also says again what could not be said."""
        self._flush()
        return self._look() != self._stamp

    def say(self, message: ToVault) -> None:
        self._said_at = time.monotonic()
        self._unsaid.append(message)
        self._flush()

    def is_silent(self) -> bool:
        return time.monotonic() - self._said_at > PATIENCE_S

    def close(self) -> None:
        self._socket.close()

    def _flush(self) -> None:
        while self._unsaid:
            message = self._unsaid.popleft()
            try:
                self._socket.sendto(encode(message), str(self._path))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN):
                    raise
                self._unsaid.appendleft(message)  # it is being started again, or is behind; the next step says it
                return

    def _look(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path.parent / PLACE_NAME)
        except FileNotFoundError:
            return (0, 0)
        return found.st_ino, found.st_mtime_ns

    def _place(self) -> Place | None:
        try:
            return decode((self._path.parent / PLACE_NAME).read_bytes(), Place)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
