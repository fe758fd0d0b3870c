"""State machines as tables.

A machine is its name, its states and a list of edges; each edge has a word for what causes it. Nothing else may move an
entity from one state to another. An edge that is not in the table is a programmer's mistake or a world that we do not
understand, so it raises, and the error carries the entity's *story*: the edges it took so far, with times and causes.
(Returning False instead hides the mistake until the state is beyond repair.) Diagrams in the docs come from the table.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Generic, TypeVar

from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value

S = TypeVar("S", bound=Enum)


class State(Enum):
    """Base of the states of machines. Members are found by identity, since they are looked up all the time, and the
    usual hash of an enumeration is a call in Python. Neither is the same in two processes: nothing may depend on the
    order of a set of them."""

    __hash__ = object.__hash__

    def __init__(self, word: str) -> None:
        self.word = word
        """The value, as an attribute: `value` is a property that is written in Python."""


STORY_LENGTH = 32
"""Edges that an entity remembers. The log has all of them; the story is for error messages and `history`."""


class Chapter(Value):
    """One edge that an entity took."""

    at: Instant
    start: str
    end: str
    cause: str


class IllegalTransition(Exception):
    """An edge that is not in the table. A defect: whoever sees it reports it, with the story."""

    def __init__(self, machine: str, entity: str, start: str, end: str, cause: str, story: Iterable[Chapter]) -> None:
        self.machine, self.entity, self.start, self.end, self.cause = machine, entity, start, end, cause
        self.story = tuple(story)
        told = "; ".join(f"{c.at} {c.start}->{c.end} ({c.cause})" for c in self.story) or "nothing happened before"
        super().__init__(f"{machine} {entity}: no edge {start} -> {end} ({cause}); story: {told}")


class Machine(Generic[S]):
    """A transition table.

    `edges` rows are (from, to, word for the cause). `first` is the state in which an entity is born.
    """

    def __init__(self, name: str, first: S, edges: Iterable[tuple[S, S, str]]) -> None:
        self.name = name
        self.first = first
        self.edges = tuple(edges)
        self._allowed = frozenset((start, end) for start, end, _ in self.edges)
        self._words = {(start, end): (str(start.value), str(end.value)) for start, end in self._allowed}
        assert len(self._allowed) == len(self.edges), f"{name}: an edge stands twice in the table"
        reached = {first} | {end for _, end, _ in self.edges}
        assert reached == set(type(first)), f"{name}: unreachable states {set(type(first)) - reached}"

    def allows(self, start: S, end: S) -> bool:
        return (start, end) in self._allowed

    def final_states(self) -> frozenset[S]:
        """States that no edge leaves."""
        return frozenset(type(self.first)) - {start for start, _, _ in self.edges}

    def step(
        self, entity: str, story: tuple[Chapter, ...], start: S, end: S, at: Instant, cause: str
    ) -> tuple[Chapter, ...]:
        """The story with this edge added. Raises `IllegalTransition` if the table has no such edge."""
        words = self._words.get((start, end))
        if words is None:
            raise IllegalTransition(self.name, entity, start.value, end.value, cause, story)
        chapter = Chapter(at=at, start=words[0], end=words[1], cause=cause)
        return (*story, chapter) if len(story) < STORY_LENGTH else (*story[1 - STORY_LENGTH :], chapter)

    def mermaid(self) -> str:
        """The table as a mermaid state diagram."""
        names = {state: state.value.replace("-", "_") for state in type(self.first)}
        lines = ["stateDiagram-v2", f"    [*] --> {names[self.first]}"]
        lines += [f"    {names[start]} --> {names[end]}: {word}" for start, end, word in self.edges]
        lines += [f"    {names[state]} --> [*]" for state in sorted(self.final_states(), key=lambda s: s.value)]
        return "\n".join(lines) + "\n"
