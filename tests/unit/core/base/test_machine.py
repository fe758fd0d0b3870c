"""Machines as tables: what is in them is allowed, all else raises with the story."""

from enum import Enum

import pytest

from trainmaster.core.base.machine import STORY_LENGTH, IllegalTransition, Machine
from trainmaster.core.base.time import Instant
from trainmaster.core.checkpoint.publish import MACHINE as CHECKPOINT_MACHINE
from trainmaster.core.fleet.lifecycle import HOST_MACHINE
from trainmaster.core.maintenance.rollout import ROLLOUT_MACHINE
from trainmaster.core.recovery.attempt import ATTEMPT_MACHINE
from trainmaster.core.scheduling.job import JOB_MACHINE

MACHINES: tuple[Machine[Enum], ...] = (HOST_MACHINE, JOB_MACHINE, ATTEMPT_MACHINE, CHECKPOINT_MACHINE, ROLLOUT_MACHINE)  # type: ignore[assignment]
PAIRS = [
    pytest.param(machine, start, end, id=f"{machine.name}:{start.value}->{end.value}")
    for machine in MACHINES
    for start in type(machine.first)
    for end in type(machine.first)
]


class Lamp(Enum):
    OFF = "off"
    ON = "on"
    BURNT_OUT = "burnt-out"


LAMP = Machine(
    "lamp", Lamp.OFF, [(Lamp.OFF, Lamp.ON, "switch"), (Lamp.ON, Lamp.OFF, "switch"), (Lamp.ON, Lamp.BURNT_OUT, "age")]
)


@pytest.mark.parametrize(("machine", "start", "end"), PAIRS)
def test_every_pair_is_in_the_table_or_raises(machine: Machine[Enum], start: Enum, end: Enum) -> None:
    """1. An entity has a story of one edge. 2. An edge of the table makes the story longer. 3. Any other raises, names
    machine, entity, both states and the cause, and tells the story."""
    first = next((s, e) for s, e, _ in machine.edges)
    story = machine.step("e7", (), *first, Instant(5), "how it began")
    if machine.allows(start, end):
        longer = machine.step("e7", story, start, end, Instant(9), "because")
        assert [chapter.cause for chapter in longer] == ["how it began", "because"]
        return
    with pytest.raises(IllegalTransition) as caught:
        machine.step("e7", story, start, end, Instant(9), "because")
    text = str(caught.value)
    assert f"{machine.name} e7: no edge {start.value} -> {end.value} (because)" in text
    assert f"5 {first[0].value}->{first[1].value} (how it began)" in text
    assert caught.value.story == story


def test_an_error_without_a_story_says_so() -> None:
    with pytest.raises(IllegalTransition, match="nothing happened before"):
        LAMP.step("l1", (), Lamp.OFF, Lamp.BURNT_OUT, Instant(0), "dropped")


def test_a_story_keeps_its_newest_chapters() -> None:
    """1. A lamp is switched more often than a story is long. 2. The last switches remain."""
    story, states = (), [Lamp.OFF, Lamp.ON]
    for number in range(STORY_LENGTH + 5):
        story = LAMP.step("l1", story, states[number % 2], states[1 - number % 2], Instant(number), "switch")
    assert len(story) == STORY_LENGTH
    assert story[-1].at == STORY_LENGTH + 4


def test_a_table_with_a_state_out_of_reach_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"unreachable states.*BURNT_OUT"):
        Machine("lamp", Lamp.OFF, [(Lamp.OFF, Lamp.ON, "switch")])


def test_a_table_with_an_edge_twice_is_refused() -> None:
    with pytest.raises(AssertionError, match="twice"):
        Machine("lamp", Lamp.OFF, [*LAMP.edges, (Lamp.OFF, Lamp.ON, "timer")])


def test_the_diagram() -> None:
    """1. The first state, every edge with its word, and the ends. 2. Hyphens, which mermaid can't read, are gone."""
    assert LAMP.final_states() == {Lamp.BURNT_OUT}
    assert LAMP.mermaid() == (
        "stateDiagram-v2\n"
        "    [*] --> off\n"
        "    off --> on: switch\n"
        "    on --> off: switch\n"
        "    on --> burnt_out: age\n"
        "    burnt_out --> [*]\n"
    )


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_live_state_has_a_way_out(machine: Machine[Enum]) -> None:
    """A state that no edge leaves is an end, and the ends are these."""
    ends = {
        "host": set(),
        "job": set(),
        "attempt": {"finished", "failed", "preempted", "cancelled"},
        "checkpoint": {"torn"},
        "rollout": {"complete", "stopped", "off-boarded"},
    }
    assert {state.value for state in machine.final_states()} == ends[machine.name]
