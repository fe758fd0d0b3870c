"""Admission: who may move bytes to or from a shared store now, and how many.

A save is a burst of N writers whose sizes are known. If all of them start at once, each waits for each: the store's
queues hold the whole save, and a read that comes then waits behind it. So they are staggered: a writer *wants* to move
a piece, and moves it when it is *granted*; only a window of bytes is under way at once.

- *Between classes* the next grant goes to the class that has had least for its share (start-time fair queueing, Goyal,
  Vin and Chen 1996): each class has a tag that grows by bytes over share; the lowest one is next. A class that asks for
  nothing leaves all to the others; when it comes back, its tag is put forward to the present, so it neither pays for
  its silence nor is paid for it, and its turn is the next one (`Policy.back_within`).
- *Within a class* saves go one after the other, in the order in which they came: two saves that share a store both end
  late, one behind the other one of them ends early. Within a save the largest writers start first, since a large one
  that starts last is what everybody waits for. Streams (readers, whose size nobody knows) take turns.
- *All together* draw from one bucket, if the policy sets a pace.

Nobody starves: each want has a place in an order that grows, and finitely many stand before it.

Rejected: a bucket of tokens for each class. Without lending it wastes what idle classes leave; with lending it is this
split, but for a store whose rate is known, and no disk's is. Priorities: a steady class of higher priority starves the
others. Fixed parts of the window: what is idle for a moment stays idle. Limits: a class has its share only while it
wants more than its share; one read at a time, each after the last, is bounded by latency. Shares are of bytes moved,
whatever they cost the store.

The state is mutable and knows no clock: every call says what time it is, and time never goes back.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final

import msgspec

from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Problem
from trainmaster.core.storage.classes import KINDS, MILLION, Kind, Policy, problems
from trainmaster.core.storage.turns import Turn

WRITERS_MAX: Final = 1 << 20
_TAG: Final = 1 << 20  # tags are whole numbers: bytes times this, over percents


class Grant(Value):
    """This writer may move so many bytes now: its oldest want."""

    writer: str
    size_bytes: int


class Refusal(Exception):
    """What a writer asked for can't be; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.sentence)
        self.problem = problem


class _Writer(msgspec.Struct, kw_only=True, gc=False):
    """A writer or reader that is there."""

    turn: Turn
    place: tuple[int, int, int]
    stream: bool
    wants: deque[int]
    under_way_bytes: int = 0
    lapsed_bytes: int = 0
    """Under way too, but it counts no more."""
    moved_at: Instant
    queued: bool = False


class _Class(msgspec.Struct, kw_only=True, gc=False):
    share: int
    heap: list[tuple[tuple[int, int, int], str]]
    tag: int = 0
    granted_bytes: int = 0
    moved_bytes: int = 0


class Admission:
    """The state of one store's admission. Raises `ValueError` for a policy with problems."""

    def __init__(self, policy: Policy, now: Instant) -> None:
        wrong = problems(policy)
        if wrong:
            raise ValueError("; ".join(problem.sentence for problem in wrong))
        self.policy = policy
        self.under_way_bytes = 0
        """Granted, not yet moved, and not lapsed."""
        self._now = now
        self._classes = {kind: _Class(share=share, heap=[]) for kind, share in policy.percents().items()}
        self._writers: dict[str, _Writer] = {}
        self._saves: dict[tuple[Kind, str], tuple[int, int]] = {}  # place, and writers that are there
        self._places = 0
        self._present = 0  # the tag of the grant that was given last
        self._tokens = 0 if policy.pace is None else policy.pace.depth_bytes * MILLION  # in byte-microseconds

    # --- what writers say ---

    def open(self, writer: str, kind: Kind, size_bytes: int, now: Instant, save: str = "") -> None:
        """A writer of a save, whose size is known; or, without a save, a stream. Raises `Refusal`."""
        self._pass(now)
        if writer in self._writers:
            raise Refusal(_twice(writer, self._writers[writer].turn))
        if len(self._writers) >= WRITERS_MAX:
            sentence = f"{len(self._writers)} writers are there already, and {writer} is one too many"
            raise Refusal(Problem(token="too-many-writers", sentence=sentence, numbers={"writers": WRITERS_MAX}))
        if kind not in KINDS or size_bytes < 0 or (save and not size_bytes):
            sentence = f"{writer} wants to move {size_bytes} bytes of class {kind!r}; classes are {', '.join(KINDS)}"
            raise Refusal(Problem(token="bad-writer", sentence=sentence, numbers={"size_bytes": size_bytes}))
        self._places += 1
        place = self._places
        if save:
            place, there = self._saves.get((kind, save), (place, 0))
            self._saves[kind, save] = place, there + 1
        turn = Turn(writer=writer, kind=kind, save=save, size_bytes=size_bytes, opened_at=now, since=now)
        self._writers[writer] = _Writer(
            turn=turn, place=(place, -size_bytes, self._places), stream=not save, wants=deque(), moved_at=now
        )

    def want(self, writer: str, size_bytes: int, now: Instant) -> None:
        """It is ready to move a piece, one grant at most. Raises `Refusal`."""
        self._pass(now)
        found = self._known(writer)
        if not 0 < size_bytes <= self.policy.quantum_bytes:
            sentence = f"{writer} wants {size_bytes} bytes at once; a grant is 1 to {self.policy.quantum_bytes}"
            numbers = {"size_bytes": size_bytes, "quantum_bytes": self.policy.quantum_bytes}
            raise Refusal(Problem(token="piece-too-large", sentence=sentence, numbers=numbers))
        asked = found.turn.asked_bytes + size_bytes
        if not found.stream and asked > found.turn.size_bytes:
            sentence = f"{writer} has said that it moves {found.turn.size_bytes} bytes, and wants {asked}"
            numbers = {"size_bytes": found.turn.size_bytes, "asked_bytes": asked}
            raise Refusal(Problem(token="more-than-said", sentence=sentence, numbers=numbers))
        found.turn.asked_bytes = asked
        found.wants.append(size_bytes)
        self._queue(writer, found)
        self._phase(found, now)

    def done(self, writer: str, size_bytes: int, now: Instant) -> None:
        """It has moved a piece that it was granted (or given it up). Raises `Refusal`."""
        self._pass(now)
        found = self._known(writer)
        if not 0 < size_bytes <= found.under_way_bytes + found.lapsed_bytes:
            held = found.under_way_bytes + found.lapsed_bytes
            sentence = f"{writer} has moved {size_bytes} bytes, of {held} that it was granted"
            numbers = {"size_bytes": size_bytes, "granted_bytes": held}
            raise Refusal(Problem(token="more-than-granted", sentence=sentence, numbers=numbers))
        lapsed = min(found.lapsed_bytes, size_bytes)
        found.lapsed_bytes -= lapsed
        found.under_way_bytes -= size_bytes - lapsed
        self.under_way_bytes -= size_bytes - lapsed
        found.turn.moved_bytes += size_bytes
        found.turn.ended_at = found.moved_at = now
        self._classes[found.turn.kind].moved_bytes += size_bytes
        self._phase(found, now)

    def close(self, writer: str, now: Instant) -> Turn:
        """It goes, whether it is done or died: what it had wanted or was granted is free again. What it did."""
        self._pass(now)
        found = self._known(writer)
        self.under_way_bytes -= found.under_way_bytes
        found.under_way_bytes = found.lapsed_bytes = 0
        found.wants.clear()  # its place in the heap is passed over
        self._phase(found, now)
        del self._writers[writer]
        turn = found.turn
        if turn.save:
            place, there = self._saves[turn.kind, turn.save]
            self._saves[turn.kind, turn.save] = place, there - 1
            if there == 1:
                del self._saves[turn.kind, turn.save]
        return turn

    # --- what they may ---

    def grants(self, now: Instant) -> list[Grant]:
        """All that may be granted now, in this order. Call it after whatever was said."""
        self._pass(now)
        given: list[Grant] = []
        while (kind := self._next_class()) is not None:
            of_class = self._classes[kind]
            writer = of_class.heap[0][1]
            found = self._writers[writer]
            size_bytes = found.wants[0]
            if self.under_way_bytes and self.under_way_bytes + size_bytes > self.policy.window_bytes:
                break
            if self.policy.pace is not None:
                if self._tokens <= 0:
                    break
                self._tokens -= size_bytes * MILLION
            self._give(writer, found, of_class, now)
            given.append(Grant(writer=writer, size_bytes=size_bytes))
        return given

    def next_at(self, now: Instant) -> Instant | None:
        """When to ask for grants again though nobody says anything: the bucket has tokens then. None: no need."""
        if self.policy.pace is None or self._tokens > 0 or self._next_class() is None:
            return None
        return Instant(now + -(self._tokens - 1) // self.policy.pace.rate_bytes_s + 1)

    def lapse(self, now: Instant) -> tuple[str, ...]:
        """Takes what was granted to those who moved nothing for a lease out of the window; who they are. Looks at
        every writer, so call it now and then."""
        self._pass(now)
        silent = []
        for writer, found in self._writers.items():
            if found.under_way_bytes and now - found.moved_at >= self.policy.lease:
                self.under_way_bytes -= found.under_way_bytes
                found.lapsed_bytes += found.under_way_bytes
                found.under_way_bytes = 0
                silent.append(writer)
        return tuple(silent)

    def moved(self) -> dict[Kind, int]:
        """Bytes of each class that were moved."""
        return {kind: of_class.moved_bytes for kind, of_class in self._classes.items()}

    def granted(self) -> dict[Kind, int]:
        """Bytes of each class that were granted."""
        return {kind: of_class.granted_bytes for kind, of_class in self._classes.items()}

    def waiting(self, kind: Kind) -> bool:
        """Whether somebody of this class waits for a grant."""
        self._trim(self._classes[kind])
        return bool(self._classes[kind].heap)

    # --- how ---

    def _give(self, writer: str, found: _Writer, of_class: _Class, now: Instant) -> None:
        heappop(of_class.heap)
        found.queued = False
        size_bytes = found.wants.popleft()
        if not found.under_way_bytes:
            found.moved_at = now  # the lease begins
        found.under_way_bytes += size_bytes
        self.under_way_bytes += size_bytes
        of_class.granted_bytes += size_bytes
        assert of_class.tag >= self._present, "tags grow"
        self._present = of_class.tag
        of_class.tag += size_bytes * _TAG // of_class.share
        if found.turn.granted_at is None:
            found.turn.granted_at = now
        if found.wants:
            self._queue(writer, found)
        self._phase(found, now)

    def _queue(self, writer: str, found: _Writer) -> None:
        if found.queued:
            return
        of_class = self._classes[found.turn.kind]
        self._trim(of_class)
        if not of_class.heap:
            of_class.tag = max(of_class.tag, self._present)
        if found.stream:
            self._places += 1
            found.place = (self._places, 0, 0)
        found.queued = True
        heappush(of_class.heap, (found.place, writer))

    def _next_class(self) -> Kind | None:
        """The waiting class with the lowest tag; of equals the first in the list of classes."""
        best: Kind | None = None
        for kind, of_class in self._classes.items():
            self._trim(of_class)
            if of_class.heap and (best is None or of_class.tag < self._classes[best].tag):
                best = kind
        return best

    def _trim(self, of_class: _Class) -> None:
        """Passes over those who have gone."""
        while of_class.heap:
            place, writer = of_class.heap[0]
            found = self._writers.get(writer)
            if found is not None and found.place == place and found.wants:
                return
            heappop(of_class.heap)

    def _phase(self, found: _Writer, now: Instant) -> None:
        moving = found.under_way_bytes + found.lapsed_bytes > 0
        found.turn.enter("moving" if moving else "waiting" if found.wants else "own", now)

    def _known(self, writer: str) -> _Writer:
        found = self._writers.get(writer)
        if found is None:
            sentence = f"{writer} has not said that it comes, or has gone"
            raise Refusal(Problem(token="no-such-writer", sentence=sentence))
        return found

    def _pass(self, now: Instant) -> None:
        assert now >= self._now, f"time goes back: {now} is before {self._now}"
        pace = self.policy.pace
        if pace is not None:
            self._tokens = min(pace.depth_bytes * MILLION, self._tokens + (now - self._now) * pace.rate_bytes_s)
        self._now = now


def _twice(writer: str, turn: Turn) -> Problem:
    since = f"since {turn.opened_at} us" if not turn.save else f"for {turn.save}"
    sentence = f"a second {writer} comes while the first one is there ({turn.kind}, {since}): one of them has to go"
    return Problem(token="writer-twice", sentence=sentence, numbers={"moved_bytes": turn.moved_bytes})


def share_of(moved: dict[Kind, int], kind: Kind) -> float:
    """The part of all moved bytes that a class moved."""
    whole = sum(moved.values())
    return moved[kind] / whole if whole else 0.0
