"""`trainmaster explain`: what a reason token or a state means, and what to do about it.

Tokens carry their meaning themselves; the sentences about states stand here, since they are for readers and the core
needs none of them. A word that is both a token and a state is explained as a token; `MACHINE/STATE` names the state.
"""

import difflib
from enum import Enum
from typing import Final

import click

from trainmaster.cli.errors import NoSuchThing
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.core.base.machine import Machine
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.publish import MACHINE as CHECKPOINT_MACHINE
from trainmaster.core.fleet.lifecycle import HOST_MACHINE
from trainmaster.core.health.book import CASE_MACHINE
from trainmaster.core.health.offender.rma import RMA_MACHINE
from trainmaster.core.maintenance.operation import OPERATION_MACHINE
from trainmaster.core.maintenance.rollout import ROLLOUT_MACHINE
from trainmaster.core.maintenance.train import TRAIN_MACHINE
from trainmaster.core.maintenance.visit import VISIT_MACHINE
from trainmaster.core.recovery.attempt import ATTEMPT_MACHINE
from trainmaster.core.scheduling.job import JOB_MACHINE

MACHINES: Final[tuple[Machine[Enum], ...]] = (
    HOST_MACHINE,
    JOB_MACHINE,
    ATTEMPT_MACHINE,
    CHECKPOINT_MACHINE,
    OPERATION_MACHINE,
    VISIT_MACHINE,
    TRAIN_MACHINE,
    ROLLOUT_MACHINE,
    CASE_MACHINE,
    RMA_MACHINE,
)  # type: ignore[assignment]

STATES: Final[dict[str, str]] = {
    "host/expected": "The fleet file names the host; its agent has not registered yet.",
    "host/verifying": "The host proves that it works; it takes no work until it has.",
    "host/ready": "Work may be placed on the host, if no job uses it already.",
    "host/draining": "The host takes nothing new; what runs on it moves away, or ends.",
    "host/out-planned": "The host is out of work because somebody holds it; nothing runs on it.",
    "host/out-failed": "The host was lost or failed its verification; it returns through verification only.",
    "job/queued": "The job waits for hosts; its reason says for what.",
    "job/active": "An attempt of the job has hosts: it is being launched, runs, or re-forms.",
    "job/finished": "All ranks ended with success.",
    "job/failed": "The job ended by its own fault or for lack of restarts; requeue it when the cause is mended.",
    "job/cancelled": "A person ended the job.",
    "attempt/placed": "Hosts are chosen and being prepared; the ranks have no place to meet yet.",
    "attempt/launching": "The ranks are being started on all hosts.",
    "attempt/running": "All ranks run.",
    "attempt/re-forming": "The ranks have left or were lost; the next membership is being made, or waits for a host.",
    "attempt/finished": "All ranks of the attempt ended with success.",
    "attempt/failed": "The attempt ended by a failure; the job may be tried again with another one.",
    "attempt/preempted": "The attempt was asked to leave its hosts, and did, after a checkpoint if it could make one.",
    "attempt/cancelled": "A person ended the job while this attempt ran.",
    "checkpoint/staged": "Ranks are writing into a staging directory that no reader looks at.",
    "checkpoint/written": "All ranks have written and synced; the manifest names every file with size and checksum.",
    "checkpoint/verified": "What lies in the directory agrees with the manifest.",
    "checkpoint/published": "The directory has its final name; a resume may use it.",
    "checkpoint/torn": "The checkpoint is incomplete or damaged; it is never loaded.",
    "operation/requested": "The operation stands at the gate; its reason says what does not let it start.",
    "operation/admitted": "The capacity that it takes is promised; it waits for its units or for another operation.",
    "operation/draining": "Its units leave production.",
    "operation/running": "Its steps are carried out.",
    "operation/verifying": "It is carried out; its units prove that they work before they return.",
    "operation/done": "It was carried out, what it should bring was seen, and its units are back.",
    "operation/failed": "Its steps failed, or a unit did not come back; what could be undone was undone.",
    "operation/off-boarded": "Its version was rejected before it had begun.",
    "operation/cancelled": "A person took it back, or an operation that had to come before was not done.",
    "visit/noticed": "Jobs on the unit were told; it drains at the moment that costs them least.",
    "visit/draining": "The unit leaves production.",
    "visit/out": "Nothing runs on the unit; it waits for a lock, for other units, or for what is next.",
    "visit/applying": "One operation after the other is carried out on the unit.",
    "visit/rebooting": "The unit boots, once for all operations that asked for it.",
    "visit/checking": "What was applied before the reboot is looked at after it.",
    "visit/returning": "The unit proves that it works.",
    "visit/closed": "The visit is over: the unit is back, or failed.",
    "train/resting": "The train waits until its next stop is due.",
    "train/waiting": "A stop is due, and its reason says what does not let it begin.",
    "train/stopping": "Units of a domain are on their way out, worked on, or on their way back.",
    "train/ended": "A person ended the train, or it was an emergency train that has been everywhere.",
    "rollout/canary": "A few hosts get the new version first, and gather evidence about it.",
    "rollout/stage": "The hosts of a stage get the version; it passes or is rejected on evidence.",
    "rollout/paused": "A person paused the rollout; evidence about the hosts that have the version is still counted.",
    "rollout/held": "A stage found too little evidence within its limit; a person decides.",
    "rollout/complete": "All stages passed; the version is proven and belongs on every host of the pool.",
    "rollout/stopped": "A person ended the rollout; hosts that have the version keep it.",
    "rollout/off-boarded": "The version was rejected; its hosts are rolled back or held, and no other host gets it.",
    "case/observed": "The host is bad and its pool is only observed; the reason says what would be done.",
    "case/waiting": "The breaker of the pool is tripped, the host is lost, or somebody else holds it.",
    "case/remedy": "An operation repairs the host, the probes look again, or it proves that it works.",
    "case/held": "The host is out until a person has looked, or until a part came back.",
    "case/closed": "The fault is over: fixed, cleared by itself, or released by a person.",
    "rma/open": "A part goes back to its vendor; the evidence bundle goes along.",
    "rma/succeeded": "Another part was seen in the slot; the return is closed when the vendor has answered.",
    "rma/closed": "A person has said what came of it: replaced, repaired, no fault found, or withdrawn.",
}


class TokenView(Value):
    """One token."""

    token: Token
    meaning: str
    advice: str
    precedence: int


class StateView(Value):
    """One state of a machine."""

    state: str
    """MACHINE/STATE."""
    meaning: str
    next: tuple[str, ...]
    """States that may follow; none: it is an end."""


_COLUMNS = [
    Column("token", lambda view: view.token.value),
    Column("meaning", lambda view: view.meaning),
    Column("advice", lambda view: view.advice, wide=True),
    Column("precedence", lambda view: view.precedence, wide=True),
]
_FIELDS = [
    Column("token", lambda view: view.token.value),
    Column("meaning", lambda view: view.meaning),
    Column("to do", lambda view: view.advice),
]
_STATE_COLUMNS = [
    Column("state", lambda view: view.state),
    Column("meaning", lambda view: view.meaning),
    Column("next", lambda view: ", ".join(view.next)),
]


@click.command(
    cls=Command,
    examples=[
        ("trainmaster explain", "all tokens, the dominant ones first"),
        ("trainmaster explain host-lost", "one token"),
        ("trainmaster explain out-failed", "one state"),
        ("trainmaster explain job/failed", "a state of one machine"),
        ("trainmaster explain --states", "all states of all machines"),
        ("trainmaster explain -o json", "for programs"),
    ],
    exit_codes=(0, 2, 3),
)
@click.argument("word", required=False, metavar="[TOKEN|STATE]")
@click.option("--states", is_flag=True, help="List the states of all machines.")
@shows
def explain(word: str | None, states: bool, output: Output) -> None:
    """Explain a reason token or a state, or list them all.

    Where several reasons hold at once, the one that stands first in the list is shown.
    """
    if word is None and not states:
        output.listing("token", [_view(each) for each in Token], _COLUMNS)
        return
    named = [view for view in state_views() if word is None or word.lower() in (view.state, view.state.split("/")[1])]
    tokens = {str(each): each for each in Token} if word is not None and not states else {}
    if word is not None and word.lower() in tokens:
        output.one("token", _view(tokens[word.lower()]), _FIELDS)
        for view in named:
            say(f"also a state: trainmaster explain {view.state}")
    elif len(named) == 1:
        output.one("state", named[0], _STATE_COLUMNS)
    elif named:
        output.listing("state", named, _STATE_COLUMNS)
    else:
        raise _unknown(word or "", [*tokens, *STATES, *(name.split("/")[1] for name in STATES)])


def state_views() -> list[StateView]:
    """All states of all machines, in the order of their declaration."""
    views = []
    for machine in MACHINES:
        for state in type(machine.first):
            after = tuple(end.value for start, end, _ in machine.edges if start is state)
            name = f"{machine.name}/{state.value}"
            views.append(StateView(state=name, meaning=STATES[name], next=after))
    return views


def _unknown(word: str, known: list[str]) -> NoSuchThing:
    near = difflib.get_close_matches(word.lower(), known, n=1)
    fix = f"trainmaster explain {near[0]}" if near else "trainmaster explain (lists all tokens)"
    return NoSuchThing(f"no token {word!r}", fix=fix)


def _view(token: Token) -> TokenView:
    return TokenView(token=token, meaning=token.meaning, advice=token.advice, precedence=token.precedence)
