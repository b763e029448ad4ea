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
from headgate.generation.core.following import Followed, Step, StepKind, next_step
from headgate.generation.core.kind import GENERATION_KIND
from headgate.generation.core.machine import GENERATION
from headgate.generation.core.outbox import Change, Outbox, OutboxFullError, Written
from headgate.generation.core.ranges import LogStream
from headgate.generation.core.reading import Marker, Reading, Verdict
from headgate.generation.core.state import GenerationState, current_of, evolve, new_state
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.tokens import token_of_key
from headgate.records.base import Fact
from headgate.records.generation import ReaderKey, ReaderReported, WriterKey, WriterReported
from headgate.runtime.machine import Now
from headgate.runtime.role import Role, RoleSettings, TermEffect
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.simulation.switches.data_log import DataLog, DataRecord, FencedWriterError

__all__ = [
    "GENERATION_TOPIC",
    "LEASE_SECONDS",
    "SET",
    "Checkpoint",
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
            case WriteEnds(writer=writer):
                marker = Marker(effect.epoch, writer)
                ends = [(p, DataRecord(0, writer, 0, effect.position, "", marker)) for p in effect.partitions]
                self._data.commit(writer, self._data.init(writer), ends)
                return EndsWritten()
            case MeasureEnds(partitions=partitions):
                return EndsMeasured({partition: self._data.ends[partition] for partition in partitions})
            case _:
                raise TypeError(f"no such effect: {effect}")


class _Follower:
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


class SimWriter(_Follower):
    """One life of a writer: a source of numbered changes, whose keys nobody else writes."""

    def __init__(self, broker: MemoryBroker, data: DataLog, name: str, life: int, source: list[str]) -> None:
        super().__init__(broker)
        self.name, self.life, self._data, self._source = name, life, data, source
        self.followed = Followed()
        self._closed: tuple[LogStream, ...] = ()
        self._outbox = Outbox(OUTBOX_LIMIT)
        self._next = 0
        self._producer: int | None = None
        self._has_asked = False
        self._is_to_report = False
        self._ended_epoch = 0
        self.is_over = False

    def step(self) -> None:
        """One thing that can be seen from outside, or nothing."""
        self.follow()
        if self._is_to_report:
            self._report()
            return
        step = next_step(self.state, SET, self.name, self.life, self.followed)
        try:
            self._do(step)
        except FencedWriterError:
            self.is_over = True

    def thaw(self) -> None:
        """It stood still; what it was about to write it writes now, before it looks at anything."""
        if self.followed.epoch == 0:
            return
        try:
            self._write()
        except FencedWriterError:
            self.is_over = True

    def feed(self, more: bool) -> None:
        """The source gives its next change, if there is room."""
        if self._producer is None or self._next >= len(self._source) or not more:
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

    def _do(self, step: Step) -> None:
        match step.kind:
            case StepKind.JOIN:
                if not self._has_asked:
                    self._has_asked = True
                    self._report()
            case StepKind.LOST | StepKind.REPLACED:
                self.is_over = True
            case StepKind.START:
                self._start(step)
            case StepKind.SWITCH:
                self._switch(step)
            case StepKind.PROMISE:
                self._promise(step)
            case StepKind.RELEASE:
                self._closed = ()
                self.followed = msgspec.structs.replace(self.followed, promised_epoch=0, promise=-1)
            case StepKind.WRITE:
                self._write()

    def _start(self, step: Step) -> None:
        if self._producer is None:
            self._producer = self._data.init(self.name)
            self._outbox.begin(self._data.written.get(self.name, Written()))
            # The source sends again from somewhere before; what stands on the log is left out by the outbox.
            self._next = max(0, self._outbox.written.position - 2)
            return
        self._switch(step)

    def _switch(self, step: Step) -> None:
        if step.ends and self._ended_epoch != step.epoch:
            marker = Marker(step.epoch, self.name)
            records = [(p, DataRecord(0, self.name, self.life, step.position, "", marker)) for p in step.ends]
            self._data.commit(self.name, self._producer or 0, records)
            self._ended_epoch = step.epoch
            return
        self.followed = Followed(step.epoch)
        self._closed = ()
        self._is_to_report = True

    def _promise(self, step: Step) -> None:
        if self._outbox.has_held:
            self._write()
            return
        self._closed = () if step.switch is None else step.switch.closed
        self.followed = Followed(self.followed.epoch, step.epoch, self._outbox.written.ahead)
        self._is_to_report = True

    def _write(self) -> None:
        log = self.state.map_of(SET, self.followed.epoch)
        batch = self._outbox.take(log, self._closed, BATCH_LIMIT)
        if batch is None:
            return
        records = [
            (partition, DataRecord(0, self.name, self.life, change.position, change.key.decode()))
            for change, partition in batch.changes
        ]
        self._data.commit(self.name, self._producer or 0, records, batch.after)
        self._outbox.commit()

    def _report(self) -> None:
        self._is_to_report = False
        followed = self.followed
        report = WriterReported(followed.epoch, followed.promised_epoch, followed.promise, False, (), 0)
        self.say(Fact(WriterKey(SET, self.name, self.life), report))


class Checkpoint(msgspec.Struct):
    """What a reader keeps, in one transaction with what it delivers."""

    positions: dict[StreamId, int] = msgspec.field(default_factory=dict)
    done: set[StreamId] = msgspec.field(default_factory=set)


class SimReader(_Follower):
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
