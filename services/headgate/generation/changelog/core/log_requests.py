"""Requests about a change log as a whole: create it, add partitions, delete it."""

from typing import Final

from msgspec.structs import replace

from headgate.generation.changelog.core.planning import first_map
from headgate.generation.changelog.core.request_queue import (
    adopt_partitions,
    drawer,
    settle_all,
    waiting_of,
    what_is_wrong,
)
from headgate.generation.changelog.core.switching import advance, prepare
from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import (
    CreateLog,
    DeleteLog,
    EffectRefused,
    GrowLog,
    LogDeleted,
    LogSeen,
    LookAtLog,
)
from headgate.generation.core.ranges import LogMap, MapError
from headgate.records.control import OutcomeStatus
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKind,
    SetRecorded,
)
from headgate.records.name_lists import number_of

__all__ = ["check", "create", "delete", "exists", "grow", "note_failure", "take_created", "take_deleted", "take_grown"]

TOLD_MAX: Final = 100
"""Characters by which two reasons count as the same: longer ones may be shortened on the log."""

NO_ROOM: Final = (
    "Every partition has a stream, so no partition is free for a switch: add some with `headgate generation grow`"
)


def create(
    draft: GenerationDraft, outcome: GenerationOutcomeKey, request: GenerationRequested, record: SetRecorded | None
) -> None:
    """Create a change log. One that is so already is checked."""
    if record is not None and (record.topic, record.partitions) == (request.topic, request.partitions):
        check(draft, outcome, record)
    elif record is not None:
        draft.settle(outcome, OutcomeStatus.REFUSED, exists(outcome.set, record))
    elif not 1 <= request.streams <= request.partitions:
        draft.settle(
            outcome,
            OutcomeStatus.REFUSED,
            f"{request.streams} streams need as many partitions, and {request.partitions} were asked for",
        )
    else:
        _accept(draft, outcome, f"creating topic {request.topic}")
        draft.run(("create", outcome.set), CreateLog(outcome.set, request.topic, request.partitions, outcome.request))


def take_created(draft: GenerationDraft, name: str, result: LogSeen | EffectRefused) -> None:
    """The topic of a new change log is there: its first generation is in force at once."""
    waiting = waiting_of(draft, name, GenerationRequestKind.CREATE)
    if not waiting or draft.find(name) is not None:
        return
    outcome, request = waiting[0]
    if isinstance(result, EffectRefused):
        settle_all(draft, waiting, OutcomeStatus.REFUSED, result.reason)
        return
    count, epoch = len(result.ends), draft.last_epoch(name) + 1
    try:
        log = first_map(count, request.streams, drawer(result.entropy), generation=epoch)
    except MapError as error:
        draft.settle(outcome, OutcomeStatus.REFUSED, str(error))
        return
    streams = [replace(stream, start_offset=result.ends[stream.partition]) for stream in log.streams]
    draft.put_set(name, SetRecorded(0, request.topic, result.topic_id, count, epoch - 1, (), ()))
    prepare(draft, name, LogMap.of(epoch, streams, count), (outcome.request,), f"created by {request.requested_by}")
    advance(draft, name)
    if len(streams) == count:
        said = f"generation {epoch} is committed. {NO_ROOM}"
        draft.settle(outcome, OutcomeStatus.DONE, said)


def grow(
    draft: GenerationDraft, outcome: GenerationOutcomeKey, request: GenerationRequested, record: SetRecorded
) -> None:
    """Add partitions to a change log's topic."""
    if request.partitions <= record.partitions:
        draft.settle(
            outcome,
            OutcomeStatus.REFUSED,
            f"topic {record.topic} has {record.partitions} partitions already, and a topic cannot lose any",
        )
    else:
        _accept(draft, outcome, f"adding partitions to topic {record.topic}")
        draft.run(("grow", outcome.set), GrowLog(outcome.set, record.topic, request.partitions))


def take_grown(draft: GenerationDraft, name: str, result: LogSeen | EffectRefused) -> None:
    """Partitions were added to the topic, or could not be."""
    waiting = waiting_of(draft, name, GenerationRequestKind.GROW)
    wrong = result.reason if isinstance(result, EffectRefused) else what_is_wrong(draft.record(name), result)
    if isinstance(result, EffectRefused) or wrong is not None:
        settle_all(draft, waiting, OutcomeStatus.REFUSED, wrong or "")
        return
    adopt_partitions(draft, name, result)
    record = draft.record(name)
    said = (
        f"topic {record.topic} has {number_of(record.partitions, 'partition')}, and the next switch can use all of them"
    )
    settle_all(draft, waiting, OutcomeStatus.DONE, said)


def delete(draft: GenerationDraft, outcome: GenerationOutcomeKey, record: SetRecorded) -> None:
    """Delete a change log that has no readers, with its topics."""
    readers = sorted(draft.state.readers.get(outcome.set, {}))
    if readers:
        draft.settle(
            outcome,
            OutcomeStatus.REFUSED,
            f"registered readers would lose it: {', '.join(readers)}. Stop each and delete it (`headgate generation "
            "reader delete`). A feed is a reader until it is deleted",
        )
        return
    _accept(draft, outcome, f"deleting topic {record.topic}")
    writers = tuple(each.writer for each in record.writers if not each.is_over)
    draft.run(("delete", outcome.set), DeleteLog(outcome.set, record.topic, record.topic_id, writers))


def take_deleted(draft: GenerationDraft, name: str, result: LogDeleted) -> None:
    """The topics are deleted: delete all records as well, whether or not a request still waits for it."""
    waiting = waiting_of(draft, name, GenerationRequestKind.DELETE)
    others = [*waiting_of(draft, name), *waiting_of(draft, name, GenerationRequestKind.GROW)]
    others += waiting_of(draft, name, GenerationRequestKind.REPAIR)
    topic = draft.record(name).topic
    said = f"change log {name!r} and its topic {topic} are deleted"
    if result.is_shared:
        said = f"change log {name!r} is deleted. Its topic {topic} stays, because another change log has it as well"
    settle_all(draft, waiting, OutcomeStatus.DONE, said)
    settle_all(draft, others, OutcomeStatus.FAILED, f"change log {name!r} was deleted")
    draft.delete_set(name)


def check(draft: GenerationDraft, outcome: GenerationOutcomeKey, record: SetRecorded) -> None:
    """Compare what is recorded with the topic."""
    _accept(draft, outcome, "checking the topic and the chunks")
    draft.run(("repair", outcome.set), LookAtLog(outcome.set, record.topic, is_check=True))


def note_failure(draft: GenerationDraft, effect: CreateLog | GrowLog | DeleteLog | LookAtLog, reason: str) -> None:
    """Report once to the waiting requests why an effect failed; it is retried."""
    said = f"it failed and is retried: {reason}"
    for kind in _ASKED_BY[type(effect)]:
        for outcome, _ in waiting_of(draft, effect.set, kind):
            known = draft.outcome(outcome)
            if known is None or known.reason[:TOLD_MAX] != said[:TOLD_MAX]:
                draft.settle(outcome, OutcomeStatus.ACCEPTED, said)


_ASKED_BY: Final = {
    CreateLog: (GenerationRequestKind.CREATE,),
    GrowLog: (GenerationRequestKind.GROW,),
    DeleteLog: (GenerationRequestKind.DELETE,),
    LookAtLog: (GenerationRequestKind.SWITCH, GenerationRequestKind.REPAIR),
}


def _accept(draft: GenerationDraft, outcome: GenerationOutcomeKey, said: str) -> None:
    """A retry is not reported: the failure before it may have been reported already."""
    if draft.outcome(outcome) is None:
        draft.settle(outcome, OutcomeStatus.ACCEPTED, said)


def exists(name: str, record: SetRecorded) -> str:
    """The message for a change log that exists already."""
    return f"change log {name!r} already exists: topic {record.topic}, {number_of(record.partitions, 'partition')}"
