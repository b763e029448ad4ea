"""Requests of operators, and their outcomes. What autoscaling wants comes after them.

Requests for a switch that come while another one is under way wait. Those that wait are combined, in the order of the
log, into one switch, as far as they do not change the same streams. Checks that come while one is made get the answer
of that one. A request that was answered is not answered again. Requests about a whole change log: log_requests.py.
"""

from collections.abc import Callable, Sequence

from headgate.generation.changelog.core import automatic
from headgate.generation.changelog.core.log_requests import check, create, delete, exists, grow
from headgate.generation.changelog.core.phases import SwitchSignal
from headgate.generation.changelog.core.planning import next_map
from headgate.generation.changelog.core.request_queue import (
    adopt_partitions,
    drawer,
    settle_all,
    waiting_of,
    what_is_wrong,
)
from headgate.generation.changelog.core.switching import advance, prepare, raise_signal
from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import EffectRefused, LogSeen, LookAtLog
from headgate.generation.core.ranges import LogMap, MapError, Recut, check_switch
from headgate.generation.core.state import current_of, open_switch_of
from headgate.generation.core.stream_id import StreamId, StreamIdError
from headgate.records.control import OutcomeStatus, is_unsettled
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationPhase,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    SetRecorded,
    StreamsRecut,
)

__all__ = [
    "FORGOTTEN_MS",
    "answer",
    "begin_waiting",
    "forget_settled",
    "take_look",
    "take_repair",
]

FORGOTTEN_MS = 86_400_000
"""Requests that were settled a day ago are deleted: a command deletes its own unless it was killed or gave up."""


def answer(draft: GenerationDraft, key: GenerationRequestKey, request: GenerationRequested) -> None:
    """A request has come, or a new owner has found it."""
    outcome = GenerationOutcomeKey(key.set, key.request)
    settled = draft.outcome(outcome)
    if not is_unsettled(settled):
        return
    record = draft.find(key.set)
    if request.kind is GenerationRequestKind.CREATE:
        create(draft, outcome, request, record)
    elif record is None and request.kind is GenerationRequestKind.DELETE and key.set in draft.state.deleted:
        draft.settle(outcome, OutcomeStatus.DONE, f"change log {key.set!r} is deleted")
    elif record is None:
        draft.settle(outcome, OutcomeStatus.REFUSED, f"not_found: change log {key.set!r} does not exist")
    elif request.kind is GenerationRequestKind.ABORT:
        _abort(draft, outcome, record, request.requested_by)
    elif request.kind is GenerationRequestKind.RETIRE:
        _retire(draft, outcome, record)
    elif request.kind is GenerationRequestKind.REPAIR:
        check(draft, outcome, record)
    elif request.kind is GenerationRequestKind.GROW:
        grow(draft, outcome, request, record)
    elif request.kind is GenerationRequestKind.DELETE:
        delete(draft, outcome, record)
    else:
        begin_waiting(draft, key.set)
        if draft.outcome(outcome) is None:
            draft.settle(outcome, OutcomeStatus.ACCEPTED, "it waits for its turn, or for a look at the topic")


def forget_settled(draft: GenerationDraft) -> None:
    """Delete old requests whose commands did not."""
    for key in sorted(draft.state.requests):
        outcome = GenerationOutcomeKey(key.set, key.request)
        settled = draft.outcome(outcome)
        if settled is not None and not is_unsettled(settled) and draft.now.wall_ms - settled.settled_ms > FORGOTTEN_MS:
            draft.delete(key)
            draft.delete(outcome)


def begin_waiting(draft: GenerationDraft, name: str) -> None:
    """Begin the next switch, if one is asked for and none is under way."""
    record = draft.find(name)
    if record is None or open_switch_of(record) is not None or not waiting_of(draft, name):
        return
    draft.run(("look", name), LookAtLog(name, record.topic))


def take_look(draft: GenerationDraft, name: str, result: LogSeen | EffectRefused) -> None:
    """The topic was looked at for the switches that wait, or was created."""
    if isinstance(result, EffectRefused):
        settle_all(draft, waiting_of(draft, name), OutcomeStatus.REFUSED, result.reason)
        return
    wrong = what_is_wrong(draft.record(name), result)
    if wrong is not None:
        settle_all(draft, waiting_of(draft, name), OutcomeStatus.REFUSED, wrong)
        return
    adopt_partitions(draft, name, result)
    record = draft.record(name)
    if open_switch_of(record) is None:
        _choose(draft, name, result)
    draft.memory(name).proposal = None
    advance(draft, name)


def take_repair(draft: GenerationDraft, name: str, result: LogSeen | EffectRefused) -> None:
    """The topic was inspected for a check: answer all requests that have arrived by now."""
    again = waiting_of(draft, name, GenerationRequestKind.CREATE)
    waiting = [*waiting_of(draft, name, GenerationRequestKind.REPAIR), *again]
    if isinstance(result, EffectRefused):
        settle_all(draft, waiting, OutcomeStatus.FAILED, result.reason)
        return
    if what_is_wrong(draft.record(name), result) is None:
        adopt_partitions(draft, name, result)
    record = draft.record(name)
    problems = [wrong] if (wrong := what_is_wrong(record, result)) is not None else []
    for generation in record.generations:
        try:
            draft.map_of(name, generation.epoch)
        except MapError as error:
            problems.append(str(error))
    advance(draft, name)
    problems += _standstill(draft, name)
    if problems:
        settle_all(draft, waiting, OutcomeStatus.FAILED, "; ".join(problems))
        return
    current = current_of(record)
    said = f"generation {current.epoch} covers every token" if current is not None else "no generation exists yet"
    settle_all(draft, again, OutcomeStatus.DONE, exists(name, record))
    settle_all(draft, waiting[: len(waiting) - len(again)], OutcomeStatus.DONE, f"nothing is wrong: {said}")


def _standstill(draft: GenerationDraft, name: str) -> list[str]:
    """Why a switch does not proceed: the last failure of each effect that it waits for."""
    open_switch = open_switch_of(draft.record(name))
    if open_switch is None:
        return []
    epochs = (open_switch.epoch, open_switch.follows)
    failures = sorted((about, why) for about, why in draft.term.failures.items() if about[1] == name)
    return [
        f"the switch to generation {open_switch.epoch} waits: {_WAITS.get(about[0], about[0])} fails: {why}"
        for about, why in failures
        if about[0] == "fence" or about[-1] in epochs
    ]


_WAITS = {"ends": "writing END markers", "measure": "measuring the closed streams", "fence": "fencing a writer"}


def _abort(draft: GenerationDraft, outcome: GenerationOutcomeKey, record: SetRecorded, who: str) -> None:
    prepared = next((each for each in record.generations if each.phase is GenerationPhase.PREPARED), None)
    if prepared is None:
        draft.settle(outcome, OutcomeStatus.REFUSED, "no switch is prepared: what is committed cannot be taken back")
        return
    raise_signal(draft, outcome.set, prepared.epoch, SwitchSignal.ABANDONED, f"taken back by {who}")
    automatic.suspend(draft, outcome.set, f"generation {prepared.epoch} was taken back by {who}")
    draft.settle(outcome, OutcomeStatus.DONE, f"generation {prepared.epoch} is aborted")


def _retire(draft: GenerationDraft, outcome: GenerationOutcomeKey, record: SetRecorded) -> None:
    drained = [each.epoch for each in record.generations if each.phase is GenerationPhase.DRAINED]
    for epoch in drained:
        raise_signal(draft, outcome.set, epoch, SwitchSignal.EXPIRED)
    held = [
        f"{each.epoch} is {each.phase.value}"
        for each in record.generations
        if each.phase in (GenerationPhase.CLOSING, GenerationPhase.SUPERSEDED)
    ]
    said = f"retired: {', '.join(map(str, drained)) or 'none'}"
    draft.settle(outcome, OutcomeStatus.DONE, f"{said}; held back: {', '.join(held)}" if held else said)


def _choose(draft: GenerationDraft, name: str, seen: LogSeen) -> None:
    """One switch of all that wait, as far as they go together."""
    record = draft.record(name)
    current = current_of(record)
    if current is None:
        return
    before = draft.map_of(name, current.epoch)
    free = draft.free_partitions(name, before)
    epoch = record.last_epoch + 1

    def made_of(changes: Sequence[Recut]) -> LogMap:
        draw = drawer(seen.entropy)
        made = next_map(before, changes, free, record.partitions, draw, generation=epoch, starts=seen.ends)
        check_switch(before, made, ())
        return made

    chosen: list[Recut] = []
    taken: list[GenerationOutcomeKey] = []
    for outcome, request in waiting_of(draft, name):
        try:
            changes = [*chosen, *map(_recut, request.changes)]
            made_of(changes)
        except (MapError, StreamIdError) as error:
            if not chosen:
                draft.settle(outcome, OutcomeStatus.REFUSED, str(error))
            continue
        if not request.changes:
            draft.settle(outcome, OutcomeStatus.DONE, f"generation {current.epoch} is so already")
            continue
        chosen = changes
        taken.append(outcome)
    if not chosen:
        _choose_proposal(draft, name, current.epoch, made_of)
        return
    for outcome in taken:
        draft.settle(outcome, OutcomeStatus.ACCEPTED, f"generation {epoch} is prepared")
    automatic.suspend(draft, name, f"generation {epoch} was asked for by {_who(draft, taken)}")
    prepare(draft, name, made_of(chosen), tuple(outcome.request for outcome in taken), f"{len(chosen)} changes")


def _choose_proposal(
    draft: GenerationDraft, name: str, epoch: int, made_of: Callable[[Sequence[Recut]], LogMap]
) -> None:
    """Choose autoscaling's proposal, if nothing else is requested."""
    proposal = draft.memory(name).proposal
    if proposal is None or proposal.epoch != epoch:
        return
    try:
        log = made_of(proposal.changes)
    except MapError:
        return  # Partitions are missing that were free at its look: the next one plans by those that there are.
    prepare(draft, name, log, (), f"automatic: {len(proposal.changes)} changes, the first by {proposal.changes[0].why}")


def _who(draft: GenerationDraft, taken: Sequence[GenerationOutcomeKey]) -> str:
    keys = (GenerationRequestKey(outcome.set, outcome.request) for outcome in taken)
    return ", ".join(sorted({draft.state.requests[key].request.requested_by for key in keys}))


def _recut(asked: StreamsRecut) -> Recut:
    return Recut(tuple(map(StreamId.parse, asked.streams)), asked.cuts, "")
