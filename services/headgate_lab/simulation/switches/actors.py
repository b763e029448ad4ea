"""Who takes part: owners in the real role loop, writers and readers that do what their pure machines say.

Each ``step`` does one thing that others can see, so a kill between two steps is a kill at every place that matters.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.eventlog.log import Delivery, Partition, Placed
from headgate.generation.core.effects import (
    CreateLog,
    EffectFailed,
    EndsMeasured,
    EndsWritten,
    FenceWriter,
    LookAtLog,
    MeasureEnds,
    WriteEnds,
    WriterFenced,
)
from headgate.generation.core.following import Followed
from headgate.generation.core.kind import GENERATION_KIND
from headgate.generation.core.life import Act, LifeOverError, Report, Simple, Turn, Write, WriterLife
from headgate.generation.core.machine import GENERATION
from headgate.generation.core.outbox import Change, Outbox, OutboxFullError, Written
from headgate.generation.core.pacing import BatchPace
from headgate.generation.core.reading import Marker, Reading, Verdict
from headgate.generation.core.state import GenerationState, current_of, evolve, new_state
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.tokens import token_of_key
from headgate.records.base import Fact
from headgate.records.generation import ReaderKey, ReaderReported, WriterKey
from headgate.runtime.machine import Now
from headgate.runtime.role import Role, RoleSettings, TermEffect
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.simulation.switches.data_log import DataLog, DataRecord, FencedWriterError

__all__ = [
    "GENERATION_TOPIC",
    "LEASE_SECONDS",
    "SET",
    "Checkpoint",
    "Follower",
    "SimOwner",
    "SimReader",
    "SimWriter",
    "has_current",
]

SET: Final = "orders"
GENERATION_TOPIC: Final = Partition("generation", 0)
LEASE_SECONDS: Final = 5.0
OUTBOX_LIMIT: Final = 12
BATCH_LIMIT: Final = 3
BATCH_BYTES: Final = 9
"""Keys have four or five bytes, so batches end for their size too."""

POLL_LIMIT: Final = 100


class SimOwner:
    """One process that may own the set."""

    def __init__(self, broker: MemoryBroker, data: DataLog, name: str, entropy: Callable[[], int]) -> None:
        self._data = data
        self._entropy = entropy
        self.effects: list[TermEffect] = []
        settings = RoleSettings(
            kind=GENERATION_KIND,
            shard=0,
            owner_id=name,
            transactional_id="generation",
            version="test",
            schema_version=2,
            lease_seconds=LEASE_SECONDS,
            holder_lease_seconds=LEASE_SECONDS,
        )
        self.role: Role[GenerationState] = Role(settings, GENERATION, broker.client(), run_effect=self.effects.append)

    def turn(self, now: float) -> None:
        """One turn of the role loop."""
        self.role.turn(Now(now, round(now * 1000)))

    def run_effect(self, index: int, *, fails: bool) -> None:
        """Run one of the effects that wait, or let it fail."""
        effect = self.effects.pop(index)
        self.role.finish(effect, EffectFailed("no broker") if fails else self._run(effect.effect))

    def _run(self, effect: object) -> object:
        match effect:
            case CreateLog() | LookAtLog():
                return self._data.seen(self._entropy())
            case FenceWriter(writer=writer):
                self._data.init(writer)
                return WriterFenced(self._data.written.get(writer, Written()).ahead)
            case WriteEnds():
                for writer, position in effect.cuts:
                    end = DataRecord(0, writer, 0, position, "", Marker(effect.epoch, writer))
                    self._data.append([(partition, end) for partition in effect.partitions])
                return EndsWritten()
            case MeasureEnds(partitions=partitions):
                return EndsMeasured({partition: self._data.ends[partition] for partition in partitions})
            case _:
                raise TypeError(f"no such effect: {effect}")


class Follower:
    """What writers and readers share: the records of the topic generation, read as they come."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.log = broker.client()
        self.state = new_state(0)
        self._reader = self.log.reader({GENERATION_TOPIC: 0})

    def follow(self) -> bool:
        """Read what is new; whether there was any."""
        items = self._reader.poll(POLL_LIMIT, 0.0)
        for item in items:
            if isinstance(item, Delivery):
                evolve(self.state, item.key, item.value, item.offset)
        return bool(items)

    def say(self, fact: Fact) -> None:
        """Write one record, idempotently."""
        self.log.writer("sim").write([Placed(GENERATION_TOPIC, fact)], 1.0)


class SimWriter(Follower):
    """One life of a writer: a source of numbered changes, whose keys nobody else writes.

    It carries out what the product's ``WriterLife`` says. Whoever stands still, or is killed, is so between what it has
    decided and its doing it.
    """

    def __init__(  # noqa: PLR0917 - a world's parts
        self, broker: MemoryBroker, data: DataLog, name: str, life: int, source: list[str], before: "SimWriter | None"
    ) -> None:
        """``before``: the life before in the same process, which was fenced: what it had not written goes on."""
        super().__init__(broker)
        self.name, self._data, self._source = name, data, source
        self._outbox: Outbox = Outbox(OUTBOX_LIMIT) if before is None else before._outbox
        self._next: int | None = None if before is None else before._next
        self._life = WriterLife(self.state, SET, name, life, self._outbox, pace=BatchPace(BATCH_LIMIT, BATCH_BYTES))
        self._turn: Turn | None = None
        self._decided: Act | None = None
        self._producer = 0
        self.is_over = False
        self.is_replaced = False

    @property
    def followed(self) -> Followed:
        """How far it is, for who looks on."""
        return self._life.followed

    def step(self, now: float) -> None:
        """Decide one thing, or do what was decided before; ``now`` in seconds."""
        try:
            if self._turn is None:
                self.follow()
                self._turn = self._life.turn(now)
                self._decide(None)
            elif self._decided is not None:
                self._decide(self._carry_out(self._decided))
        except FencedWriterError:
            self.is_over = True
        except LifeOverError as error:
            self.is_over, self.is_replaced = True, error.is_replaced

    def feed(self, more: bool) -> None:
        """The source gives its next change, if there is room."""
        if self._next is None or self._next >= len(self._source) or not more:
            return
        key = self._source[self._next]
        try:
            self._outbox.add(Change(self._next, token_of_key(key.encode()), key.encode(), None))
        except OutboxFullError:
            return
        self._next += 1

    def is_idle(self) -> bool:
        """Whether all of the source is written."""
        return self._next == len(self._source) and len(self._outbox) == 0

    def _decide(self, answer: Written | None) -> None:
        if self._turn is None:
            raise RuntimeError("no turn has begun")
        try:
            self._decided = self._turn.send(answer)
        except StopIteration:
            self._turn = self._decided = None

    def _carry_out(self, act: Act) -> Written | None:
        match act:
            case Simple.TAKE_ID:
                self._producer = self._data.init(self.name)
            case Simple.READ_RECORDS:
                while self.follow():
                    pass
            case Simple.READ_WRITTEN:
                written = self._data.written.get(self.name, Written())
                if self._next is None:
                    # The source sends again from somewhere before; what stands on the log is left out by the outbox.
                    self._next = max(0, written.position - 2)
                return written
            case Write(batch=batch):
                records = [
                    (partition, DataRecord(0, self.name, self._life.life, change.position, change.key.decode()))
                    for change, partition in batch.changes
                ]
                self._data.commit(self.name, self._producer, records, batch.after)
            case Report():
                self.say(Fact(WriterKey(SET, self.name, self._life.life), act.record(0)))
        return None


class Checkpoint(msgspec.Struct):
    """What a reader keeps, in one transaction with what it delivers."""

    positions: dict[StreamId, int] = msgspec.field(default_factory=dict)
    done: set[StreamId] = msgspec.field(default_factory=set)


class SimReader(Follower):
    """One life of a reader; what it delivers and where it is outlive it."""

    def __init__(
        self,
        broker: MemoryBroker,
        data: DataLog,
        checkpoint: Checkpoint,
        deliver: Callable[[DataRecord], None],
        *,
        strict: bool,
    ) -> None:
        super().__init__(broker)
        self._data, self._checkpoint, self._deliver = data, checkpoint, deliver
        self.reading = Reading(SET, strict=strict, done=checkpoint.done)
        self._said = -1
        self._turn = 0

    def step(self) -> None:
        """Read a little of one stream, or say how far all are read."""
        while self.follow():
            pass
        gaps = self.reading.learn(self.state)
        if gaps:
            raise AssertionError(f"a gap where the reader was waited for: {gaps}")
        known = {stream: at for stream, at in self._checkpoint.positions.items() if stream in self.reading.streams}
        self.reading.resume_at(known)
        if has_current(self.state) and self.reading.read_epoch() > self._said:
            self._said = self.reading.read_epoch()
            self.say(Fact(ReaderKey(SET, "r"), ReaderReported(self._said, 0)))
            return
        readable = self.reading.readable()
        if not readable:
            return
        self._turn += 1
        chosen = readable[self._turn % len(readable)]
        stream = chosen.stream
        records, position = self._data.read(stream.partition, chosen.next_offset, BATCH_LIMIT, chosen.end)
        for record in records:
            if chosen.is_read:
                break
            verdict = self.reading.take(stream.id, record.offset, record.writer, record.marker)
            if verdict is Verdict.DELIVER:
                self._deliver(record)
            elif verdict is Verdict.MARKER:
                self._data.check_end(stream.partition, stream.start_offset, record)
        if not chosen.is_read:
            gap = self.reading.passed(stream.id, position, self._data.starts[stream.partition])
            if gap is not None:
                raise AssertionError(f"a gap where nothing was deleted: {gap}")
        self._checkpoint.positions[stream.id] = chosen.next_offset
        if chosen.is_read:
            self._checkpoint.done.add(stream.id)


def has_current(state: GenerationState) -> bool:
    """Whether the set has a generation in force."""
    record = state.sets.get(SET)
    return record is not None and current_of(record) is not None
