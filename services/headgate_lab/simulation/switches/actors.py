"""Who takes part: owners in the real role loop, writers and readers that do what their pure machines decide.

Each ``step`` does one thing that others can see, so a kill between two steps is a kill at every place that matters.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.eventlog.log import Delivery, Partition, Placed
from headgate.generation.changelog.core.following import Followed
from headgate.generation.changelog.core.life import (
    Act,
    FollowReport,
    LifeOverError,
    LogDeletedError,
    Simple,
    Turn,
    Write,
    WriterLife,
)
from headgate.generation.changelog.core.outbox import (
    Outbox,
    OutboxFullError,
    PendingChange,
    PositionsLostError,
    Written,
)
from headgate.generation.changelog.core.pacing import BatchPace
from headgate.generation.changelog.core.reader_progress import ReaderProgress
from headgate.generation.changelog.core.reading import Gap, Marker
from headgate.generation.core.effects import (
    CreateLog,
    DeleteLog,
    EffectRefused,
    EndsMeasured,
    EndsWritten,
    FenceWriter,
    GrowLog,
    LogDeleted,
    LookAtLog,
    MeasureEnds,
    WriteEnds,
    WriterFenced,
)
from headgate.generation.core.state import GenerationState, current_of, evolve, new_state
from headgate.generation.core.tokens import token_of_key
from headgate.generation.owner.core.kind import GENERATION_KIND
from headgate.generation.owner.core.machine import GENERATION
from headgate.records.base import Fact
from headgate.records.generation import ReaderKey, ReaderReported, WriterKey
from headgate.runtime.machine import EffectFailed, Now
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.simulation.switches.data_log import DataLog, DataRecord, FencedWriterError
from headgate_lab.worlds.kernel import OwnerProcess, role_settings

__all__ = [
    "GENERATION_TOPIC",
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
OUTBOX_LIMIT: Final = 12
BATCH_LIMIT: Final = 3
BATCH_BYTES: Final = 9
"""Keys have four or five bytes, so batches end for their size too."""

POLL_LIMIT: Final = 100
STORE_TURNS: Final = 6
"""A reader's caller stores after so many steps, and commits at the next one."""


class SimOwner(OwnerProcess[GenerationState]):
    """One process that may own the set."""

    def __init__(self, broker: MemoryBroker, data: DataLog, name: str, entropy: Callable[[], int]) -> None:
        settings = role_settings(GENERATION_KIND, name, transactional_id="generation", schema_version=2)
        super().__init__(settings, GENERATION, broker)
        self._data = data
        self._entropy = entropy

    def turn(self, now: float) -> None:
        """One turn of the role loop."""
        self.role.turn(Now(now, round(now * 1000)))

    def run_effect(self, index: int, *, fails: bool) -> None:
        """Run one of the effects that wait, or let it fail."""
        effect = self.effects.pop(index)
        self.role.finish(effect, EffectFailed("no broker") if fails else self._run(effect.effect))

    def _run(self, effect: object) -> object:  # noqa: PLR0911 - a case for each effect
        match effect:
            case CreateLog():
                self._data.create()
                return self._data.seen(self._entropy())
            case LookAtLog():
                return self._data.seen(self._entropy()) if self._data.exists else EffectRefused("it does not exist")
            case DeleteLog(topic_id=topic_id, writers=writers):
                for writer in writers:
                    self._data.init(writer)
                self._data.drop(topic_id)
                return LogDeleted()
            case GrowLog(partitions=partitions):
                self._data.grow(partitions)
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
                raise TypeError(f"unknown effect: {effect}")


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
    """One life of a writer: a source of numbered changes, whose keys no other writer has.

    It carries out what the product's ``WriterLife`` decides. A writer is frozen or killed between what it has decided
    and its doing it.
    """

    def __init__(  # noqa: PLR0917 - a world's parts
        self, broker: MemoryBroker, data: DataLog, name: str, life: int, source: list[str], before: "SimWriter | None"
    ) -> None:
        """``before``: the life before in the same process, which was fenced: what it had not written is continued."""
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
        except (LogDeletedError, PositionsLostError):
            # The program ends with an error; its next start begins with what is on the new log.
            self.is_over = self.is_replaced = True

    def feed(self, more: bool) -> None:
        """The source gives its next change, if there is room."""
        if self._next is None or self._next >= len(self._source) or not more:
            return
        key = self._source[self._next]
        try:
            self._outbox.add(PendingChange(self._next, token_of_key(key.encode()), key.encode(), None))
        except OutboxFullError:
            return
        self._next += 1

    def is_idle(self) -> bool:
        """Whether all of the source is written."""
        return self._next == len(self._source) and len(self._outbox) == 0

    def _decide(self, answer: Written | None) -> None:
        if self._turn is None:
            raise RuntimeError("no turn has started")
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
                    # The source sends again from somewhere before; what is on the log is left out by the outbox.
                    self._next = max(0, written.position - 2)
                return written
            case Write(batch=batch):
                records = [
                    (partition, DataRecord(0, self.name, self._life.life, change.position, change.key.decode()))
                    for change, partition in batch.changes
                ]
                self._data.commit(self.name, self._producer, records, batch.after)
            case FollowReport():
                self.say(Fact(WriterKey(SET, self.name, self._life.life), act.record(0)))
        return None


class Checkpoint(msgspec.Struct):
    """What a reader's caller stores in one transaction with the changes: the reader's positions, as JSON."""

    positions: bytes = b"{}"

    def stored(self) -> dict[str, int]:
        """The positions that a new run continues from."""
        return msgspec.json.decode(self.positions, type=dict[str, int])

    def store(self, positions: dict[str, int]) -> None:
        """Keep them."""
        self.positions = msgspec.json.encode(positions)


class SimReader(Follower):
    """One run of a reader and of its caller. Only what the caller stores outlives it.

    It carries out what the product's ``ReaderProgress`` decides, as ``ChangeReader`` does on Kafka.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        data: DataLog,
        checkpoint: Checkpoint,
        deliver: Callable[[DataRecord], None],
        tell: Callable[[Gap], None],
        *,
        strict: bool,
        reader: str,
    ) -> None:
        super().__init__(broker)
        self._data, self._checkpoint, self._deliver, self._tell, self._id = data, checkpoint, deliver, tell, reader
        self.progress = ReaderProgress(SET, strict=strict)
        self._taken: list[tuple[DataRecord, str]] = []
        self._has_begun = False
        self._is_stored = True
        self._reported: int | None = None
        self._turn = self._fetched = 0

    def step(self) -> None:
        """Begin, fetch from one partition, have some or all changes stored, or commit."""
        while self.follow():
            pass
        if SET not in self.state.sets:
            return
        self.progress.learn(self.state)
        self._turn += 1
        if not self._has_begun:
            self._begin()
        elif self._turn % STORE_TURNS == 0:
            self._store()
        elif self._turn % STORE_TURNS == 1 and self._is_stored:
            self.progress.commit()
            self._report()
        else:
            self._fetch()

    def _begin(self) -> None:
        stored = self._checkpoint.stored()
        if stored:
            self.progress.resume(stored)
        else:
            self.progress.begin({})
        self._has_begun = True
        self._report()

    def _report(self) -> None:
        epoch = self.progress.committed_epoch
        if has_current(self.state) and epoch != self._reported:
            self._reported = epoch
            self.say(Fact(ReaderKey(SET, self._id), ReaderReported(epoch, 0)))

    def _store(self) -> None:
        """In one transaction. At every other time only the first half of a poll, with the position of each change."""
        half = len(self._taken) // 2 if self._turn % (2 * STORE_TURNS) == 0 else 0
        if half:
            stored = self._checkpoint.stored()
            for record, stream in self._taken[:half]:
                self._deliver(record)
                stored[stream] = record.offset + 1
            del self._taken[:half]
            self._checkpoint.store(stored)
            return
        for record, _ in self._taken:
            self._deliver(record)
        self._taken.clear()
        self._checkpoint.store(self.progress.positions)
        self._is_stored = True

    def _fetch(self) -> None:
        fetches = sorted(self.progress.fetches().items())
        if not fetches:
            return
        self._is_stored = False
        self._fetched += 1
        partition, chosen = fetches[self._fetched % len(fetches)]
        start = self._data.starts[partition]
        if chosen.next_offset < start:
            self.progress.deleted(partition, start)
        else:
            records, position = self._data.read(partition, chosen.next_offset, BATCH_LIMIT, None)
            for record in records:
                self._take(partition, record)
            self.progress.reached(partition, position)
        for gap in self.progress.new_gaps():
            self._tell(gap)

    def _take(self, partition: int, record: DataRecord) -> None:
        self.progress.reached(partition, record.offset)
        if not self.progress.is_awaited(partition, record.offset):
            return
        if record.marker is not None:
            start = self.progress.fetches()[partition].stream.start_offset
            self._data.check_end(partition, start, record)
        reading = self.progress.take(partition, record.offset, record.writer, record.marker)
        if reading is not None:
            self._taken.append((record, str(reading.stream.id)))


def has_current(state: GenerationState) -> bool:
    """Whether the set has a generation in force."""
    record = state.sets.get(SET)
    return record is not None and current_of(record) is not None
