"""The state of the owner of generations: the newest record of every key, their maps, and one term's memory.

``evolve`` folds records into one map per kind of key; ``digest`` covers these only. A generation's map is made of its
chunks on demand, and kept: chunks never change. The term is what this owner intends to do and no record contains yet;
``decide`` writes it, and it dies with the term.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headgate.generation.core.ranges import LogMap, LogStream, MapError
from headgate.generation.core.stream_id import StreamId, StreamIdError
from headgate.generation.core.stream_table import StreamTable
from headgate.generation.core.term import GenerationTerm
from headgate.generation.core.timestamp_records import TimestampRecords
from headgate.records.base import Key, Record
from headgate.records.control import OwnerAnnounced, RequestSettled
from headgate.records.defaults import without_defaults
from headgate.records.generation import (
    AutomaticKey,
    AutomaticRecorded,
    ChunkKey,
    GenerationDescribed,
    GenerationOutcomeKey,
    GenerationOwnerKey,
    GenerationPhase,
    GenerationRecorded,
    GenerationRequested,
    GenerationRequestKey,
    PolicyRequested,
    PolicyRequestKey,
    ReaderKey,
    ReaderReported,
    SetKey,
    SetRecorded,
    StreamDescribed,
    WriterKey,
    WriterReported,
)

CHUNK_STREAMS: Final = 5_000
"""Streams in one record: at 150 bytes each, and a few parents, under a megabyte, which every topic takes."""


class PlacedRequest(msgspec.Struct, frozen=True):
    """A request and its position: requests are processed in that order."""

    offset: int
    request: GenerationRequested


class PlacedPolicy(msgspec.Struct, frozen=True):
    """As PlacedRequest, for what autoscaling is to go by."""

    offset: int
    request: PolicyRequested


@dataclass(slots=True)
class GenerationState:
    """See the module's docstring. Everything but ``maps``, ``tables`` and ``term`` is derived from the log.

    ``deleted``: what is left of change logs that were deleted, of which only the last epoch matters.
    """

    shard: int
    owner_rev: int = -1
    sets: dict[str, SetRecorded] = field(default_factory=dict)
    deleted: dict[str, SetRecorded] = field(default_factory=dict)
    chunks: dict[tuple[str, int], dict[int, GenerationDescribed]] = field(default_factory=dict)
    writers: dict[str, dict[tuple[str, int], WriterReported]] = field(default_factory=dict)
    readers: dict[str, dict[str, ReaderReported]] = field(default_factory=dict)
    requests: dict[GenerationRequestKey, PlacedRequest] = field(default_factory=dict)
    outcomes: dict[GenerationOutcomeKey, RequestSettled] = field(default_factory=dict)
    automatic: dict[str, AutomaticRecorded] = field(default_factory=dict)
    policies: dict[PolicyRequestKey, PlacedPolicy] = field(default_factory=dict)
    timestamps: TimestampRecords = field(default_factory=TimestampRecords)
    maps: dict[tuple[str, int], LogMap] = field(default_factory=dict)
    tables: dict[str, StreamTable] = field(default_factory=dict)
    term: GenerationTerm | None = None

    def map_of(self, name: str, epoch: int) -> LogMap:
        """The map of a generation. Raises MapError, which names the chunk, where it cannot be made."""
        known = self.maps.get((name, epoch))
        if known is None:
            known = self.maps[name, epoch] = map_of_chunks(
                name, self.sets[name], epoch, self.chunks.get((name, epoch), {})
            )
        return known

    def streams_of(self, name: str) -> StreamTable | None:
        """The streams of a set as its newest record has them, the same object until the record changes.

        None for a set without a record. Raises MapError.
        """
        record, known = self.sets.get(name), self.tables.get(name)
        if record is None:
            return None
        if known is None or known.record is not record:
            links = {} if known is None else known.links
            known = self.tables[name] = StreamTable.of(record, lambda epoch: self.map_of(name, epoch), links)
        return known


def new_state(shard: int) -> GenerationState:
    """An owner that has read nothing."""
    return GenerationState(shard)


def state_for_writer(state: GenerationState, name: str, writer: str) -> GenerationState:
    """What a writer of set ``name`` has to know of ``state``, as a state of its own: of reports, only its own."""
    reports = {key: report for key, report in state.writers.get(name, {}).items() if key[0] == writer}
    return GenerationState(
        state.shard,
        state.owner_rev,
        sets={name: state.sets[name]} if name in state.sets else {},
        chunks={key: dict(chunks) for key, chunks in state.chunks.items() if key[0] == name},
        writers={name: reports} if reports else {},
    )


def evolve(state: GenerationState, key: Key, value: Record | None, offset: int) -> None:
    """Adopt one record; skip a value whose type is not its key's."""
    if value is not None and type(value) is not key.record:
        return
    match key:
        case SetKey():
            _adopt_set(state, key.set, value if isinstance(value, SetRecorded) else None)
        case ChunkKey():
            if state.maps.pop((key.set, key.epoch), None) is not None:
                state.tables.pop(key.set, None)
            _put_into(state.chunks, (key.set, key.epoch), key.chunk, value)
        case WriterKey():
            _put_into(state.writers, key.set, (key.writer, key.life), value)
        case ReaderKey():
            _put_into(state.readers, key.set, key.reader, value)
        case GenerationRequestKey():
            _put(state.requests, key, PlacedRequest(offset, value) if isinstance(value, GenerationRequested) else None)
        case GenerationOutcomeKey():
            _adopt(state.outcomes, key, value)
        case PolicyRequestKey():
            _put(state.policies, key, PlacedPolicy(offset, value) if isinstance(value, PolicyRequested) else None)
        case AutomaticKey():
            _adopt(state.automatic, key.set, value)
        case GenerationOwnerKey() if key.shard == state.shard and isinstance(value, OwnerAnnounced):
            state.owner_rev = max(state.owner_rev, offset if value.owner_rev is None else value.owner_rev)
        case _:
            state.timestamps.evolve(key, value, offset)


def digest(state: GenerationState) -> str:
    """A digest of what is on the log: equal states have equal digests, whichever version wrote the records."""
    parts = (
        *((f"set {name}", record) for name, record in (*state.sets.items(), *state.deleted.items())),
        *((f"chunk {name}", record) for name, kept in _flat(state.chunks) for record in (kept,)),
        *((f"writer {name}", record) for name, record in _flat(state.writers)),
        *((f"reader {name}", record) for name, record in _flat(state.readers)),
        *((f"outcome {key.text()}", outcome) for key, outcome in state.outcomes.items()),
        *((f"request {key.text()} {placed.offset}", placed.request) for key, placed in state.requests.items()),
        *((f"automatic {name}", automatic) for name, automatic in state.automatic.items()),
        *((f"policy {key.text()} {asked.offset}", asked.request) for key, asked in state.policies.items()),
        *state.timestamps.parts(),
    )
    body = hashlib.sha256(str(state.owner_rev).encode())
    for name, record in sorted(parts, key=lambda part: part[0]):
        body.update(name.encode() + msgspec.json.encode(without_defaults(record), order="sorted"))
    return body.hexdigest()


def chunks_of(log: LogMap, owner_rev: int) -> tuple[GenerationDescribed, ...]:
    """The records that describe a map."""
    parts = [log.streams[at : at + CHUNK_STREAMS] for at in range(0, len(log.streams), CHUNK_STREAMS)]
    return tuple(
        GenerationDescribed(owner_rev, len(parts), tuple(_described(stream) for stream in part)) for part in parts
    )


def map_of_chunks(name: str, record: SetRecorded, epoch: int, chunks: Mapping[int, GenerationDescribed]) -> LogMap:
    """The map that chunks describe. Raises MapError, which names what is missing or wrong."""
    generation = next((each for each in record.generations if each.epoch == epoch), None)
    if generation is None:
        raise MapError(f"set {name} has no generation {epoch}")
    missing = [number for number in range(generation.chunks) if number not in chunks]
    if missing:
        raise MapError(
            f"{name}/{epoch}/{missing[0]} does not exist on the topic generation: {generation.chunks} chunks are due"
        )
    try:
        streams = [
            LogStream(
                StreamId.parse(stream.id),
                stream.start,
                stream.end,
                stream.partition,
                stream.generation,
                tuple(map(StreamId.parse, stream.parents)),
                stream.start_offset,
            )
            for number in range(generation.chunks)
            for stream in chunks[number].streams
        ]
    except StreamIdError as error:
        raise MapError(f"a chunk of {name}/{epoch} is corrupt: {error}") from error
    return LogMap.of(epoch, streams, record.partitions)


def current_of(record: SetRecorded) -> GenerationRecorded | None:
    """The generation in force."""
    return next((each for each in record.generations if each.phase is GenerationPhase.COMMITTED), None)


def open_switch_of(record: SetRecorded) -> GenerationRecorded | None:
    """The generation whose switch is under way: it is prepared, or the one before it is still closing."""
    for each in record.generations:
        if each.phase is GenerationPhase.PREPARED:
            return each
        if each.phase is GenerationPhase.CLOSING:
            return current_of(record)
    return None


def _described(stream: LogStream) -> StreamDescribed:
    return StreamDescribed(
        id=str(stream.id),
        start=stream.start,
        end=stream.end,
        partition=stream.partition,
        generation=stream.generation,
        start_offset=stream.start_offset,
        parents=tuple(map(str, stream.parents)),
    )


def _adopt(records: dict[Any, Any], key: Any, value: Any) -> None:
    """A record replaces its key's record unless its owner is an earlier one."""
    old = records.get(key)
    if value is None or old is None or value.owner_rev >= old.owner_rev:
        _put(records, key, value)


def _adopt_set(state: GenerationState, name: str, value: SetRecorded | None) -> None:
    old = state.sets.get(name) or state.deleted.get(name)
    if value is not None and old is not None and value.owner_rev < old.owner_rev:
        return
    _put(state.sets, name, value if value is not None and value.topic else None)
    _put(state.deleted, name, value if value is not None and not value.topic else None)


def _put(records: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        records.pop(key, None)
    else:
        records[key] = value


def _put_into(records: dict[Any, dict[Any, Any]], outer: Any, inner: Any, value: Any) -> None:
    of_outer = records.setdefault(outer, {})
    old = of_outer.get(inner)
    if not isinstance(value, GenerationDescribed) or old is None or value.owner_rev >= old.owner_rev:
        _put(of_outer, inner, value)
    if not of_outer:
        del records[outer]


def _flat(records: Mapping[Any, Mapping[Any, Any]]) -> Iterable[tuple[str, Any]]:
    return ((f"{outer} {inner}", record) for outer, of_outer in records.items() for inner, record in of_outer.items())
