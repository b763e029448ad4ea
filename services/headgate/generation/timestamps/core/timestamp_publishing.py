"""Publishes and removes the rows of timestamp sets, one row per turn, oldest generation first.

The owner of the set does this whenever something has happened to it, so the next owner continues after one that dies:
it sees on the log what is missing, and makes it again from the ring.
"""

from typing import Any, Final

from msgspec.structs import replace

from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import CheckRows, MakeTopology, TopologyMade
from headgate.generation.core.timestamp_records import RowKey, missing_row, removal_of
from headgate.generation.timestamps.core.descriptions import row_of
from headgate.generation.timestamps.core.rings import chunks_of_ring
from headgate.records.control import OutcomeStatus
from headgate.records.generation import GenerationOutcomeKey
from headgate.records.timestamps import (
    DescriptionKey,
    RingKey,
    RingRecorded,
    StreamsKey,
    TimestampGeneration,
    TimestampKey,
    TimestampPublished,
    TimestampSetRecorded,
    TimestampsRequestKey,
)

__all__ = ["TIMER", "about", "advance", "heal", "publish", "take_topology"]

TIMER: Final = "timestamps"

CLEAN_SECONDS_MIN: Final = 1.0
CLEAN_SECONDS_MAX: Final = 3_600.0
"""Between two looks at what may be removed: wall clocks are set, so no wait is as long as it was computed."""


def advance(draft: GenerationDraft, name: str) -> None:
    """Write the next row that is due; if all exist, remove what is not needed any more."""
    record = draft.timestamp_set(name)
    if record is None:
        return
    for generation in record.generations:
        key = _next_row(draft, name, generation)
        if key is None:
            draft.term.topologies.pop((name, generation.timestamp_ms), None)
        elif (ring := draft.ring(name, generation.timestamp_ms)) is not None:
            _write(draft, name, generation, key, ring)
            return
    _clean(draft, name, record)


def take_topology(draft: GenerationDraft, effect: MakeTopology, result: TopologyMade) -> None:
    """A generation's topology is made: its rows can be written."""
    record = draft.timestamp_set(effect.set)
    if record is not None and any(each.timestamp_ms == effect.timestamp_ms for each in record.generations):
        draft.term.topologies[effect.set, effect.timestamp_ms] = result.topology


def about(effect: MakeTopology | CheckRows) -> tuple[Any, ...]:
    """Under which name an effect runs."""
    if isinstance(effect, CheckRows):
        return ("timestamps-check", effect.set)
    return ("topology", effect.set, effect.timestamp_ms)


def _next_row(draft: GenerationDraft, name: str, generation: TimestampGeneration) -> RowKey | None:
    missing = missing_row(draft.state.timestamps, name, generation)
    if missing is not None:
        return missing
    mine = (key for key in draft.term.wrong if (key.set, key.timestamp_ms) == (name, generation.timestamp_ms))
    return min(mine, key=lambda key: key.text(), default=None)


def _write(draft: GenerationDraft, name: str, generation: TimestampGeneration, key: RowKey, ring: RingRecorded) -> None:
    """One row, and look for the next in the next turn."""
    if isinstance(key, TimestampKey):
        publish(draft, name, generation)
        _settle_published(draft, name, generation)
    else:
        at = (name, generation.timestamp_ms)
        topology = draft.term.topologies.get(at)
        if topology is None:
            effect = MakeTopology(name, generation.timestamp_ms, ring.nodes)
            draft.run(about(effect), effect)
            return
        draft.put_last(key, row_of(topology, chunks_of_ring(ring.nodes), key, draft.term.owner_rev))
        draft.term.wrong.discard(key)
    draft.set_timer(TIMER, (0, name), 0.0)


def heal(draft: GenerationDraft, name: str, generation: TimestampGeneration, key: RowKey | RingKey) -> None:
    """Write a row again: the small ones now, the others a turn each."""
    ring = draft.ring(name, generation.timestamp_ms)
    if isinstance(key, TimestampKey):
        publish(draft, name, generation)
    elif isinstance(key, DescriptionKey | StreamsKey):
        draft.term.wrong.add(key)
    elif ring is not None:
        draft.put_last(key, replace(ring, owner_rev=draft.term.owner_rev))


def publish(draft: GenerationDraft, name: str, generation: TimestampGeneration) -> None:
    """The row that readers look for."""
    seen = TimestampPublished(draft.term.owner_rev, generation.chunks, generation.expired_ms)
    draft.put_last(TimestampKey(name, generation.timestamp_ms), seen)


def _settle_published(draft: GenerationDraft, name: str, generation: TimestampGeneration) -> None:
    record = draft.timestamp_set(name)
    if record is None or not generation.requests:
        return
    for request in generation.requests:
        if TimestampsRequestKey(name, request) in draft.state.timestamps.requests:
            said = f"generation {generation.timestamp_ms} is published"
            draft.settle(GenerationOutcomeKey(name, request), OutcomeStatus.DONE, said)
    generations = tuple(
        replace(each, requests=()) if each.timestamp_ms == generation.timestamp_ms else each
        for each in record.generations
    )
    draft.put_timestamp_set(name, replace(record, generations=generations))


# --- removal ---


def _clean(draft: GenerationDraft, name: str, record: TimestampSetRecorded) -> None:
    """Remove the oldest generation that may go, and schedule the next check."""
    removal = removal_of(draft.state.timestamps, name, record, draft.now.wall_ms)
    if removal.due:
        _remove(draft, name, record, removal.due[0])
        draft.set_timer(TIMER, (0, name), 0.0)
    elif removal.next_ms is not None:
        seconds = (removal.next_ms - draft.now.wall_ms) / 1_000
        draft.set_timer(TIMER, (0, name), min(max(seconds, CLEAN_SECONDS_MIN), CLEAN_SECONDS_MAX))


def _remove(draft: GenerationDraft, name: str, record: TimestampSetRecorded, timestamp_ms: int) -> None:
    """In the opposite order of that in which it came: it is named no more, then its timestamp goes, then its rows."""
    gone = next(each for each in record.generations if each.timestamp_ms == timestamp_ms)
    left = tuple(each for each in record.generations if each is not gone)
    draft.put_timestamp_set(name, replace(record, generations=left))
    draft.delete(TimestampKey(name, timestamp_ms))
    for form in (StreamsKey, DescriptionKey):
        for chunk in range(gone.chunks):
            draft.delete(form(name, timestamp_ms, chunk))
    draft.delete(RingKey(name, timestamp_ms))
