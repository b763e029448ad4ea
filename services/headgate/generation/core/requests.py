"""What operators ask for, and what becomes of it; and what automatic mode wants, which comes after them.

Requests for a switch that come while another one is under way wait. Those that wait are taken up together, in the order
of the log, as one switch, as far as they do not touch the same streams. Checks that come while one is made are answered
by that one. A request that was answered is not taken up again.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from headgate.generation.core import automatic
from headgate.generation.core.draft import Draft
from headgate.generation.core.effects import CreateLog, EffectRefused, LogSeen, LookAtLog
from headgate.generation.core.phases import Signal
from headgate.generation.core.planning import Recut, first_map, next_map
from headgate.generation.core.ranges import LogMap, MapError, check_switch
from headgate.generation.core.splitmix import Splitmix
from headgate.generation.core.state import current_of, open_switch_of
from headgate.generation.core.stream_id import StreamId, StreamIdError
from headgate.generation.core.switching import advance, prepare, raise_signal
from headgate.records.control import OutcomeStatus
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationPhase,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    SetRecorded,
    StreamsRecut,
)

__all__ = ["answer", "begin_waiting", "take_created", "take_look", "take_repair"]


def answer(draft: Draft, key: GenerationRequestKey, request: GenerationRequested) -> None:
    """A request has come, or a new owner has found it."""
    outcome = GenerationOutcomeKey(key.set, key.request)
    settled = draft.outcome(outcome)
    if settled is not None and settled.status is not OutcomeStatus.ACCEPTED:
        return
    record = draft.find(key.set)
    if request.kind is GenerationRequestKind.CREATE:
        _create(draft, outcome, request, record)
    elif record is None:
        draft.settle(outcome, OutcomeStatus.REFUSED, f"not_found: there is no change log {key.set!r}: create it first")
    elif request.kind is GenerationRequestKind.ABORT:
        _abort(draft, outcome, record, request.requested_by)
    elif request.kind is GenerationRequestKind.RETIRE:
        _retire(draft, outcome, record)
    elif request.kind is GenerationRequestKind.REPAIR:
        _repair(draft, outcome, record)
    else:
        begin_waiting(draft, key.set)
        if draft.outcome(outcome) is None:
            draft.settle(outcome, OutcomeStatus.ACCEPTED, "it waits for its turn, or for a look at the topic")


def begin_waiting(draft: Draft, name: str) -> None:
    """Begin the next switch, if one is asked for and none is under way."""
    record = draft.find(name)
    if record is None or open_switch_of(record) is not None or not _waiting(draft, name):
        return
    draft.run(("look", name), LookAtLog(name, record.topic))


def take_look(draft: Draft, name: str, result: LogSeen | EffectRefused) -> None:
    """The topic was looked at for the switches that wait, or was created."""
    if isinstance(result, EffectRefused):
        _settle_all(draft, _waiting(draft, name), OutcomeStatus.REFUSED, result.reason)
        return
    record = draft.record(name)
    wrong = _what_is_wrong(record, result)
    if wrong is not None:
        _settle_all(draft, _waiting(draft, name), OutcomeStatus.REFUSED, wrong)
        return
    if open_switch_of(record) is None:
        _choose(draft, name, result)
    draft.memory(name).proposal = None
    advance(draft, name)


def take_created(draft: Draft, name: str, result: LogSeen | EffectRefused) -> None:
    """The topic of a new change log is there: its first generation is in force at once."""
    waiting = _waiting(draft, name, GenerationRequestKind.CREATE)
    if not waiting or draft.find(name) is not None:
        return
    outcome, request = waiting[0]
    if isinstance(result, EffectRefused):
        _settle_all(draft, waiting, OutcomeStatus.REFUSED, result.reason)
        return
    count = len(result.ends)
    try:
        log = first_map(count, request.streams, _drawer(result.entropy))
    except MapError as error:
        draft.settle(outcome, OutcomeStatus.REFUSED, str(error))
        return
    streams = [replace(stream, start_offset=result.ends[stream.partition]) for stream in log.streams]
    draft.put_set(name, SetRecorded(0, request.topic, result.topic_id, count, 0, (), ()))
    prepare(draft, name, LogMap.of(1, streams, count), (outcome.request,), f"created by {request.requested_by}")
    advance(draft, name)


def take_repair(draft: Draft, name: str, result: LogSeen | EffectRefused) -> None:
    """The topic was looked at for a check: whoever has asked by now is answered."""
    waiting = _waiting(draft, name, GenerationRequestKind.REPAIR)
    record = draft.record(name)
    if isinstance(result, EffectRefused):
        _settle_all(draft, waiting, OutcomeStatus.FAILED, result.reason)
        return
    problems = [wrong] if (wrong := _what_is_wrong(record, result)) is not None else []
    for generation in record.generations:
        try:
            draft.map_of(name, generation.epoch)
        except MapError as error:
            problems.append(str(error))
    advance(draft, name)
    problems += _standstill(draft, name)
    if problems:
        _settle_all(draft, waiting, OutcomeStatus.FAILED, "; ".join(problems))
        return
    current = current_of(record)
    said = f"generation {current.epoch} covers every token" if current is not None else "there is no generation yet"
    _settle_all(draft, waiting, OutcomeStatus.DONE, f"nothing is wrong: {said}")


def _standstill(draft: Draft, name: str) -> list[str]:
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


def _create(
    draft: Draft, outcome: GenerationOutcomeKey, request: GenerationRequested, record: SetRecorded | None
) -> None:
    if record is not None:
        is_same = (record.topic, record.partitions) == (request.topic, request.partitions)
        status = OutcomeStatus.DONE if is_same else OutcomeStatus.REFUSED
        draft.settle(
            outcome,
            status,
            f"change log {outcome.set!r} is there: topic {record.topic}, {record.partitions} partitions",
        )
    elif not 1 <= request.streams <= request.partitions:
        draft.settle(
            outcome,
            OutcomeStatus.REFUSED,
            f"{request.streams} streams on {request.partitions} partitions: a stream needs a partition of its own",
        )
    else:
        draft.settle(outcome, OutcomeStatus.ACCEPTED, f"creating topic {request.topic}")
        draft.run(("create", outcome.set), CreateLog(outcome.set, request.topic, request.partitions))


def _abort(draft: Draft, outcome: GenerationOutcomeKey, record: SetRecorded, who: str) -> None:
    prepared = next((each for each in record.generations if each.phase is GenerationPhase.PREPARED), None)
    if prepared is None:
        draft.settle(outcome, OutcomeStatus.REFUSED, "no switch is prepared: what is committed cannot be taken back")
        return
    raise_signal(draft, outcome.set, prepared.epoch, Signal.ABANDONED, f"taken back by {who}")
    automatic.suspend(draft, outcome.set, f"generation {prepared.epoch} was taken back by {who}")
    draft.settle(outcome, OutcomeStatus.DONE, f"generation {prepared.epoch} is aborted")


def _retire(draft: Draft, outcome: GenerationOutcomeKey, record: SetRecorded) -> None:
    drained = [each.epoch for each in record.generations if each.phase is GenerationPhase.DRAINED]
    for epoch in drained:
        raise_signal(draft, outcome.set, epoch, Signal.EXPIRED)
    held = [
        f"{each.epoch} is {each.phase.value}"
        for each in record.generations
        if each.phase in (GenerationPhase.CLOSING, GenerationPhase.SUPERSEDED)
    ]
    said = f"retired: {', '.join(map(str, drained)) or 'none'}"
    draft.settle(outcome, OutcomeStatus.DONE, f"{said}; held back: {', '.join(held)}" if held else said)


def _repair(draft: Draft, outcome: GenerationOutcomeKey, record: SetRecorded) -> None:
    if draft.outcome(outcome) is None:
        draft.settle(outcome, OutcomeStatus.ACCEPTED, "looking at the topic and the chunks")
    draft.run(("repair", outcome.set), LookAtLog(outcome.set, record.topic))


Waiting = tuple[GenerationOutcomeKey, GenerationRequested]


def _waiting(draft: Draft, name: str, kind: GenerationRequestKind = GenerationRequestKind.SWITCH) -> list[Waiting]:
    """Requests of a set that are not settled, nor part of the switch that is under way, in the order of the log."""
    record = draft.find(name)
    taken = {request for each in (record.generations if record else ()) for request in each.requests}
    found = []
    for key, placed in sorted(draft.state.requests.items(), key=lambda each: each[1].offset):
        outcome = GenerationOutcomeKey(key.set, key.request)
        settled = draft.outcome(outcome)
        is_open = settled is None or settled.status is OutcomeStatus.ACCEPTED
        if key.set == name and placed.request.kind is kind and is_open and key.request not in taken:
            found.append((outcome, placed.request))
    return found


def _choose(draft: Draft, name: str, seen: LogSeen) -> None:
    """One switch of all that wait, as far as they go together."""
    record = draft.record(name)
    current = current_of(record)
    if current is None:
        return
    before = draft.map_of(name, current.epoch)
    free = draft.free_partitions(name, before)
    epoch = record.last_epoch + 1

    def made_of(changes: Sequence[Recut]) -> LogMap:
        draw = _drawer(seen.entropy)
        made = next_map(before, changes, free, record.partitions, draw, generation=epoch, starts=seen.ends)
        check_switch(before, made, ())
        return made

    chosen: list[Recut] = []
    taken: list[GenerationOutcomeKey] = []
    for outcome, request in _waiting(draft, name):
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


def _choose_proposal(draft: Draft, name: str, epoch: int, made_of: Callable[[Sequence[Recut]], LogMap]) -> None:
    """What automatic mode wants, if nobody else wants anything."""
    proposal = draft.memory(name).proposal
    if proposal is None or proposal.epoch != epoch:
        return
    try:
        log = made_of(proposal.changes)
    except MapError:
        return  # Partitions are missing that were free at its look: the next one plans by those that there are.
    prepare(draft, name, log, (), f"automatic: {len(proposal.changes)} changes, the first by {proposal.changes[0].why}")


def _who(draft: Draft, taken: Sequence[GenerationOutcomeKey]) -> str:
    keys = (GenerationRequestKey(outcome.set, outcome.request) for outcome in taken)
    return ", ".join(sorted({draft.state.requests[key].request.requested_by for key in keys}))


def _what_is_wrong(record: SetRecorded, seen: LogSeen) -> str | None:
    if record.topic_id is not None and seen.topic_id is not None and record.topic_id != seen.topic_id:
        return (
            f"topic {record.topic} was deleted and made again: what it held is gone, and its offsets begin anew. "
            "Create a change log of another name"
        )
    if len(seen.ends) < record.partitions:
        return f"topic {record.topic} has {len(seen.ends)} partitions, {record.partitions} when the log was created"
    return None


def _settle_all(draft: Draft, waiting: Sequence[Waiting], status: OutcomeStatus, reason: str) -> None:
    for outcome, _ in waiting:
        draft.settle(outcome, status, reason)


def _recut(asked: StreamsRecut) -> Recut:
    return Recut(tuple(map(StreamId.parse, asked.streams)), asked.cuts, "")


def _drawer(entropy: int) -> Callable[[int], int]:
    return Splitmix(entropy).bits
