"""The owner of generations as a machine: the rule for each input.

The rules are in two rooms that do not import each other:

    changelog    switches (phases.py has every transition), requests, autoscaling, writers that come and go
    timestamps   sets of generations by time, for sources that have only clocks

Both use the owner's state, draft, term and effects (generation/core).
"""

from typing import Any, Final

from headgate.eventlog.log import Delivery
from headgate.generation.changelog.core import automatic, log_requests, requests
from headgate.generation.changelog.core.phases import SwitchSignal
from headgate.generation.changelog.core.switching import RETRY_SECONDS, advance, hear, raise_signal, resume, take_fenced
from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import (
    CheckRows,
    CreateLog,
    DeleteLog,
    EffectRefused,
    EndsMeasured,
    EndsWritten,
    FenceWriter,
    GrowLog,
    LogDeleted,
    LogSeen,
    LookAtLog,
    MakeTopology,
    MeasureEnds,
    RowsChecked,
    TopologyMade,
    WriteEnds,
    WriterFenced,
)
from headgate.generation.core.state import GenerationState, digest, evolve, new_state
from headgate.generation.core.term import GenerationTerm
from headgate.generation.timestamps.core import timestamp_publishing, timestamp_sets
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationPhase,
    GenerationRequested,
    GenerationRequestKey,
    PolicyRequested,
    PolicyRequestKey,
    ReaderKey,
    WriterKey,
    WriterReported,
)
from headgate.records.timestamps import TimestampReaderKey, TimestampsRequested, TimestampsRequestKey
from headgate.runtime.machine import (
    Arrived,
    Decision,
    EffectFailed,
    EffectFinished,
    HolderSilent,
    Machine,
    NoTermError,
    Now,
    TermBegan,
    TimerFired,
)

__all__ = ["GENERATION", "decide", "digest", "evolve", "new_state"]


def decide(state: GenerationState, given: Any, now: Now) -> Decision:
    """What follows from one input. Changes nothing of ``state`` but its term's memory and the maps that it keeps."""
    if isinstance(given, TermBegan):
        state.term = GenerationTerm(given.owner_rev, now.monotonic)
    if state.term is None:
        raise NoTermError(given)
    draft = GenerationDraft(state, state.term, now)
    match given:
        case TermBegan():
            for name in sorted(state.sets):
                resume(draft, name)
                automatic.resume(draft, name)
            for asked, policy in sorted(state.policies.items(), key=lambda each: each[1].offset):
                automatic.answer(draft, asked, policy.request)
            for key, placed in sorted(state.requests.items(), key=lambda each: each[1].offset):
                requests.answer(draft, key, placed.request)
            requests.forget_settled(draft)
            _begin_timestamp_sets(draft)
        case Arrived(delivery=delivery):
            _on_record(draft, delivery)
        case TimerFired(name=name):
            _on_timer(draft, name)
        case EffectFinished(effect=effect, result=result):
            _on_result(draft, effect, result)
        case HolderSilent():
            pass
        case _:
            raise TypeError(f"the owner of generations knows no input {type(given).__name__}")
    return draft.decision()


def _begin_timestamp_sets(draft: GenerationDraft) -> None:
    for name in sorted(draft.state.timestamps.sets):
        timestamp_publishing.advance(draft, name)
    for key, placed in sorted(draft.state.timestamps.requests.items(), key=lambda each: each[1].offset):
        timestamp_sets.answer(draft, key, placed.request)


def _on_record(draft: GenerationDraft, delivery: Delivery) -> None:
    key, value = delivery.key, delivery.value
    match key:
        case WriterKey() if draft.find(key.set) is not None:
            automatic.hear(draft, key, value)
            _advance(draft, key.set)
            if isinstance(value, WriterReported):
                hear(draft, key.set, value)
        case ReaderKey() if draft.find(key.set) is not None:
            _advance(draft, key.set)
        case PolicyRequestKey() if isinstance(value, PolicyRequested):
            automatic.answer(draft, key, value)
        case GenerationRequestKey() if isinstance(value, GenerationRequested):
            requests.answer(draft, key, value)
        case TimestampReaderKey():
            timestamp_publishing.advance(draft, key.set)
        case TimestampsRequestKey() if isinstance(value, TimestampsRequested):
            timestamp_sets.answer(draft, key, value)
        case GenerationRequestKey() | PolicyRequestKey() | TimestampsRequestKey():
            outcome = GenerationOutcomeKey(key.set, key.request)
            if draft.outcome(outcome) is not None:
                draft.delete(outcome)
        case _:
            pass


def _advance(draft: GenerationDraft, name: str) -> None:
    advance(draft, name)
    requests.begin_waiting(draft, name)


TIMER_SIGNALS: Final = {
    "promise": SwitchSignal.OVERDUE,
    "abandon": SwitchSignal.ABANDONED,
    "expire": SwitchSignal.EXPIRED,
}
"""What it means for a generation that a timer about it has run out. ``retry`` means none of them."""

UNANSWERED: Final = "writers did not promise in time, and could not be fenced"


def _on_timer(draft: GenerationDraft, timer: str) -> None:
    kind, epoch, name = timer.split("/", 2)
    if kind == timestamp_publishing.TIMER:
        timestamp_publishing.advance(draft, name)
        return
    if draft.find(name) is None:
        _retry_create(draft, name)
        return
    if kind == automatic.TIMER:
        automatic.look(draft, name)
        return
    generation = draft.generation(name, int(epoch))
    if generation is not None and kind in TIMER_SIGNALS:
        raise_signal(draft, name, generation.epoch, TIMER_SIGNALS[kind], UNANSWERED)
    if generation is not None and kind == "retry" and generation.phase is GenerationPhase.PREPARED:
        raise_signal(draft, name, generation.epoch, SwitchSignal.OVERDUE)
    if kind == "look":
        _retry_create(draft, name)
    _advance(draft, name)


def _retry_create(draft: GenerationDraft, name: str) -> None:
    """What waits for a look at a topic that failed is asked for again."""
    for key, placed in sorted(draft.state.requests.items(), key=lambda each: each[1].offset):
        if key.set == name:
            requests.answer(draft, key, placed.request)


def _on_result(draft: GenerationDraft, effect: Any, result: Any) -> None:
    if isinstance(effect, MakeTopology | CheckRows):
        _on_rows(draft, effect, result)
        return
    about, epoch = _about(draft, effect)
    draft.finish(about)
    if isinstance(result, EffectFailed):
        draft.term.failures[about] = result.reason
        if not epoch:
            log_requests.note_failure(draft, effect, result.reason)
        draft.set_timer("retry" if epoch else "look", (epoch, effect.set), RETRY_SECONDS)
        return
    draft.term.failures.pop(about, None)
    if epoch and draft.find(effect.set) is None:
        return  # the change log was deleted
    if epoch:
        _on_switch(draft, effect, result)
    else:
        _on_topic(draft, effect, result, about[0])
    if draft.find(effect.set) is not None:
        _advance(draft, effect.set)


def _on_topic(draft: GenerationDraft, effect: Any, result: Any, about: str) -> None:
    name = effect.set
    match effect, result:
        case CreateLog(), LogSeen() | EffectRefused():
            log_requests.take_created(draft, name, result)
        case LookAtLog() | GrowLog() | DeleteLog(), _ if draft.find(name) is None:
            pass
        case LookAtLog(), LogSeen() | EffectRefused():
            if about == "repair":
                requests.take_repair(draft, name, result)
            requests.take_look(draft, name, result)
        case GrowLog(), LogSeen() | EffectRefused():
            log_requests.take_grown(draft, name, result)
        case DeleteLog(), LogDeleted():
            log_requests.take_deleted(draft, name, result)
        case _:
            raise TypeError(f"{type(effect).__name__} cannot come back as {type(result).__name__}")


def _on_switch(draft: GenerationDraft, effect: Any, result: Any) -> None:
    match effect, result:
        case FenceWriter(), WriterFenced():
            take_fenced(draft, effect.set, effect.writer, result.position)
        case WriteEnds(), EndsWritten():
            draft.end_cuts(effect.set, effect.epoch, [writer for writer, _ in effect.cuts])
        case MeasureEnds(), EndsMeasured():
            _take_ends(draft, effect, result)
        case _:
            raise TypeError(f"{type(effect).__name__} cannot come back as {type(result).__name__}")


def _on_rows(draft: GenerationDraft, effect: MakeTopology | CheckRows, result: Any) -> None:
    draft.finish(timestamp_publishing.about(effect))
    match effect, result:
        case MakeTopology(), TopologyMade():
            timestamp_publishing.take_topology(draft, effect, result)
        case CheckRows(), RowsChecked():
            timestamp_sets.take_checked(draft, effect.set, result)
        case CheckRows(), EffectFailed():
            timestamp_sets.fail_check(draft, effect.set, result.reason)
        case MakeTopology(), EffectFailed():
            draft.set_timer(timestamp_publishing.TIMER, (0, effect.set), RETRY_SECONDS)
            return
        case _:
            raise TypeError(f"{type(effect).__name__} cannot come back as {type(result).__name__}")
    timestamp_publishing.advance(draft, effect.set)


_ABOUT: Final[dict[type, str]] = {CreateLog: "create", GrowLog: "grow", DeleteLog: "delete"}
"""See GenerationDraft.run."""


def _about(draft: GenerationDraft, effect: Any) -> tuple[tuple[Any, ...], int]:
    """Under which name an effect runs, and of which generation it is."""
    match effect:
        case CreateLog() | GrowLog() | DeleteLog():
            return (_ABOUT[type(effect)], effect.set), 0
        case LookAtLog():
            repair = ("repair", effect.set)
            return (repair if draft.is_running(repair) else ("look", effect.set)), 0
        case FenceWriter():
            return ("fence", effect.set, effect.writer), effect.epoch
        case WriteEnds():
            return ("ends", effect.set, effect.epoch), effect.epoch
        case MeasureEnds():
            return ("measure", effect.set, effect.epoch), effect.epoch
        case _:
            raise TypeError(f"the owner of generations has no effect {type(effect).__name__}")


def _take_ends(draft: GenerationDraft, effect: MeasureEnds, result: EndsMeasured) -> None:
    generation = draft.generation(effect.set, effect.epoch)
    if generation is None:
        return
    raise_signal(draft, effect.set, effect.epoch, SwitchSignal.MEASURED)
    for each in draft.record(effect.set).generations:
        if each.follows == effect.epoch and each.phase is not GenerationPhase.ABORTED and not each.closed_ends:
            draft.change(effect.set, each.epoch, closed_ends=result.ends)


GENERATION: Final[Machine[GenerationState]] = Machine(new_state=new_state, evolve=evolve, decide=decide, digest=digest)
