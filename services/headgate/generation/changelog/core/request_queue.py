"""Requests that wait, and what is common to answering them."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import LogSeen
from headgate.generation.core.splitmix import Splitmix
from headgate.records.control import OutcomeStatus, is_unsettled
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKind,
    SetRecorded,
)

Waiting = tuple[GenerationOutcomeKey, GenerationRequested]


def waiting_of(
    draft: GenerationDraft, name: str, kind: GenerationRequestKind = GenerationRequestKind.SWITCH
) -> list[Waiting]:
    """Requests of a set that are not settled, nor part of the switch that is under way, in the order of the log."""
    record = draft.find(name)
    taken = {request for each in (record.generations if record else ()) for request in each.requests}
    found = []
    for key, placed in sorted(draft.state.requests.items(), key=lambda each: each[1].offset):
        outcome = GenerationOutcomeKey(key.set, key.request)
        settled = draft.outcome(outcome)
        if key.set == name and placed.request.kind is kind and is_unsettled(settled) and key.request not in taken:
            found.append((outcome, placed.request))
    return found


def settle_all(draft: GenerationDraft, waiting: Sequence[Waiting], status: OutcomeStatus, reason: str) -> None:
    """Give all of them the same answer."""
    for outcome, _ in waiting:
        draft.settle(outcome, status, reason)


def what_is_wrong(record: SetRecorded, seen: LogSeen) -> str | None:
    """Why a topic cannot be the change log's any more; None if it can."""
    if record.topic_id is not None and seen.topic_id is not None and record.topic_id != seen.topic_id:
        return (
            f"topic {record.topic} was deleted and re-created: what it held is gone, and its offsets begin at 0. "
            "`headgate generation delete` this change log, then create it again"
        )
    if seen.problem:
        return seen.problem
    if len(seen.ends) < record.partitions:
        return f"topic {record.topic} has {len(seen.ends)} partitions, {record.partitions} when the log was created"
    return None


def adopt_partitions(draft: GenerationDraft, name: str, seen: LogSeen) -> None:
    """Adopt partitions that were added to the topic, by any client: the next switch can use them."""
    record = draft.record(name)
    if len(seen.ends) > record.partitions:
        draft.put_set(name, replace(record, partitions=len(seen.ends)))


def drawer(entropy: int) -> Callable[[int], int]:
    """Random bits for new streams' ids, from the entropy that came with a look at the topic."""
    return Splitmix(entropy).bits
