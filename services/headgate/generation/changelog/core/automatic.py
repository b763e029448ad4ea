"""Autoscaling: the owner re-partitions a change log automatically, based on a policy and the load that writers report.

Every LOOK_SECONDS the owner makes a plan (planning.py) from the reported loads (reported_loads.py). It proposes what
two consecutive plans want of the same streams, then rests for the policy's cool-down. A proposal is carried out like
every switch (requests.py), but without a request on the log. So it dies with the owner, and the next owner plans again
a cool-down later.

Operators take precedence. An operator's request for a switch is served before a proposal. After such a request, or
after an operator takes a switch back, autoscaling is recorded as *suspended* until a policy is set again: it never
undoes what a person did.

Four things prevent oscillation: the distance between the policy's two limits, the time for which new streams are left
alone, two plans that must agree, and the cool-down. In addition, nothing is merged unless every writer's load is known.
"""

from typing import Final

from msgspec.structs import asdict, replace

from headgate.generation.changelog.core.life import REPORT_SECONDS
from headgate.generation.changelog.core.planning import Policy, PolicyError, RecutPlan, plan
from headgate.generation.changelog.core.reported_loads import sum_loads
from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import LookAtLog
from headgate.generation.core.ranges import LogMap, MapError
from headgate.generation.core.state import current_of, open_switch_of
from headgate.generation.core.term import Proposal
from headgate.records.control import OutcomeStatus
from headgate.records.generation import (
    AutomaticRecorded,
    GenerationOutcomeKey,
    LoadPolicy,
    PolicyRequested,
    PolicyRequestKey,
    SetRecorded,
    WriterKey,
    WriterReported,
)

__all__ = ["TIMER", "answer", "hear", "look", "policy_of", "resume", "suspend"]

LOOK_SECONDS: Final = REPORT_SECONDS
"""Sooner there is nothing new."""

TIMER: Final = "automatic"


def policy_of(record: LoadPolicy) -> Policy:
    """The policy of a record, checked. Raises PolicyError."""
    return Policy(**asdict(record)).checked()


def answer(draft: GenerationDraft, key: PolicyRequestKey, request: PolicyRequested) -> None:
    """An operator sets a policy, or ends autoscaling."""
    outcome = GenerationOutcomeKey(key.set, key.request)
    if draft.outcome(outcome) is not None:
        return
    record = draft.find(key.set)
    wrong = _what_is_wrong(key.set, record, request.policy)
    if wrong is not None:
        draft.settle(outcome, OutcomeStatus.REFUSED, wrong)
    elif request.policy is None:
        was_on = draft.automatic(key.set) is not None
        if was_on:
            draft.put_automatic(key.set, None)
            draft.cancel_timer(TIMER, (0, key.set))
        draft.settle(outcome, OutcomeStatus.DONE, f"autoscaling is off{'' if was_on else ', as it was'}")
    else:
        draft.put_automatic(
            key.set, AutomaticRecorded(0, request.policy, request.requested_by, draft.now.wall_ms, suspended="")
        )
        _begin(draft, key.set, rests_until=draft.now.monotonic)
        draft.settle(outcome, OutcomeStatus.DONE, f"autoscaling is on: it looks every {LOOK_SECONDS:g} s")


def resume(draft: GenerationDraft, name: str) -> None:
    """A new owner does not know when the one before it has switched: it rests first."""
    automatic = draft.automatic(name)
    if automatic is not None:
        _begin(draft, name, rests_until=draft.now.monotonic + automatic.policy.cool_down_seconds)


def suspend(draft: GenerationDraft, name: str, why: str) -> None:
    """Leave the log alone until a policy is set again."""
    automatic = draft.automatic(name)
    if automatic is not None and not automatic.suspended:
        draft.put_automatic(name, replace(automatic, suspended=why))
        draft.memory(name).wanted = frozenset()


def hear(draft: GenerationDraft, key: WriterKey, value: object) -> None:
    """A writer's word has come: its load, if there is one, is of now."""
    heard = draft.memory(key.set).heard
    known, _ = heard.get(key.writer, (key.life, 0.0))
    if isinstance(value, WriterReported) and value.loads and key.life >= known:
        heard[key.writer] = (key.life, draft.now.monotonic)
    elif key.life == known:
        heard.pop(key.writer, None)


def look(draft: GenerationDraft, name: str) -> None:
    """Propose what this look and the one before it want."""
    automatic = draft.automatic(name)
    if automatic is None:
        return
    draft.set_timer(TIMER, (0, name), LOOK_SECONDS)
    memory = draft.memory(name)
    before, memory.wanted = memory.wanted, frozenset()
    record = draft.record(name)
    current = current_of(record)
    if draft.is_running(("look", name)):
        return
    memory.proposal = None
    is_busy = open_switch_of(record) is not None
    if automatic.suspended or current is None or is_busy or draft.now.monotonic < memory.rests_until:
        return
    try:
        made = _plan(draft, name, record, draft.map_of(name, current.epoch), automatic.policy)
    except (MapError, PolicyError):
        # `generation repair` reports a corrupt chunk; an impossible policy was refused when it was set.
        return
    memory.wanted = frozenset((stream, bool(change.cuts)) for change in made.changes for stream in change.streams)
    agreed = tuple(
        change for change in made.changes if all((stream, bool(change.cuts)) in before for stream in change.streams)
    )
    if agreed:
        memory.rests_until = draft.now.monotonic + automatic.policy.cool_down_seconds
        memory.proposal = Proposal(current.epoch, agreed)
        draft.run(("look", name), LookAtLog(name, record.topic))


def _begin(draft: GenerationDraft, name: str, *, rests_until: float) -> None:
    memory = draft.memory(name)
    memory.rests_until, memory.wanted = rests_until, frozenset()
    draft.set_timer(TIMER, (0, name), LOOK_SECONDS)


def _plan(draft: GenerationDraft, name: str, record: SetRecorded, log: LogMap, policy: LoadPolicy) -> RecutPlan:
    now, memory = draft.now.monotonic, draft.memory(name)
    reports = draft.state.writers.get(name, {})
    ages = {(writer, life): now - at for writer, (life, at) in memory.heard.items()}
    # What was committed before this term has been open for at least as long as the term.
    opened = {stream.id: now - memory.committed.get(stream.generation, draft.term.began) for stream in log.streams}
    loads = sum_loads(record, log, reports, ages, opened)
    free = len(draft.free_partitions(name, log))
    return plan(policy_of(policy), log, loads.streams, merge=loads.is_complete, free=free)


def _what_is_wrong(name: str, record: SetRecorded | None, policy: LoadPolicy | None) -> str | None:
    if record is None:
        return f"not_found: change log {name!r} does not exist"
    if policy is None:
        return None
    try:
        policy_of(policy)
    except PolicyError as error:
        return str(error)
    if policy.streams_max > record.partitions:
        return f"streams_max ({policy.streams_max}) is more than the {record.partitions} partitions of {record.topic}"
    return None
