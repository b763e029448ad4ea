"""ChangeReader: reads a change log, each key's changes in the order in which they were written.

    with ChangeReader.open("orders", "billing", bootstrap="127.0.0.1:9092", positions=saved) as reader:
        while True:
            for change in reader.poll(1.0):
                apply(change)
            save(reader.positions)
            reader.commit()

The caller stores ``positions``, best in one transaction with its results. ``commit`` declares that they are stored:
only then may the owner of the change log retire what lies before them. changelog/core/reader_progress.py decides what
is read when; this file fetches it from Kafka. (Feeds read through Spark, not through this class.)
"""

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import ClassVar, Final, Literal, Self

import msgspec
from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import KafkaProperty
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.lasting_reader import OffsetGoneError
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.generation.changelog.core.reader_progress import ReaderProgress
from headgate.generation.changelog.core.reading import Gap, StreamReading
from headgate.generation.changelog.shell.wire import NotOursError, given_headers, marker_in, writer_in
from headgate.generation.core.ranges import MapError
from headgate.generation.shell.own_log import WithOwnLog
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.generation import ReaderKey, ReaderReported
from headgate.records.places import LogPosition

__all__ = [
    "BadRecordError",
    "ChangeLogNotFoundError",
    "ChangeReader",
    "ReadChange",
    "ReaderError",
    "Start",
    "StreamLag",
]

_log = logging.getLogger(__name__)

MESSAGES_MAX: Final = 1_000
"""Changes of one ``poll``."""

FOLLOW_SECONDS: Final = 0.1
"""How often ``poll`` checks for switches while no change comes."""

QUEUED_KBYTES_MAX: Final = 64 * 1024
"""Records fetched ahead, of all partitions together."""

Start = Literal["oldest", "latest"] | datetime
"""Where a reader without positions begins."""


class ReaderError(LogError):
    """The reader cannot continue; the message contains the reason and what to do."""

    code: ClassVar[str] = "change-reader"


class ChangeLogNotFoundError(ReaderError):
    """The change log does not exist, or was deleted."""

    code: ClassVar[str] = "change-log-not-found"


class BadRecordError(ReaderError):
    """A record that no ChangeWriter wrote. ``place`` names it as topic/partition/offset, for ``ChangeReader.skip``."""

    code: ClassVar[str] = "change-reader-bad-record"

    def __init__(self, place: LogPosition, why: str) -> None:
        super().__init__(
            f"topic {place.topic}, partition {place.partition}, offset {place.offset}: {why}. The reader stops here. "
            "Find out who writes to the topic of the change log. To leave out this record, call "
            f"reader.skip({str(place)!r})"
        )
        self.place = str(place)


class ReadChange(msgspec.Struct, frozen=True):
    """One change of the log. ``position`` and ``writer`` are the source's, ``offset`` is Kafka's.

    ``timestamp_ms``: when it was written, in ms since 1970, by the clock of the writer (or of the broker, if the topic
    is configured so); None if the record has no timestamp. ``stream`` and ``next_offset`` are the entry of this change
    in ``ChangeReader.positions``.
    """

    key: bytes | None
    value: bytes | None
    writer: str
    position: int
    partition: int
    offset: int
    generation: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    stream: str = ""
    timestamp_ms: int | None = None

    @property
    def next_offset(self) -> int:
        """Where to continue in ``stream`` after this change."""
        return self.offset + 1


class StreamLag(msgspec.Struct, frozen=True):
    """How far a reader is behind in one stream: ``lag`` offsets, of which some are not changes.

    ``end``: where the stream, or for an open one its partition, ends now. ``is_waiting``: other streams come before it.
    """

    stream: str
    generation: int
    partition: int
    position: int
    end: int
    lag: int
    is_waiting: bool


class ChangeReader(WithOwnLog):
    """One process of a reader. Use it from one thread. ``close`` it, or use it as a context manager."""

    def __init__(
        self,
        log: KafkaLog,
        name: str,
        reader: str,
        *,
        positions: Mapping[str, int] | None = None,
        start: Start = "oldest",
        strict: bool = False,
        skip: Iterable[str] = (),
    ) -> None:
        """Register ``reader`` at change log ``name``, and continue from ``positions``.

        Without positions (none, or empty ones) it begins at ``start``: with the oldest generation that is not retired,
        behind the changes of now, or with the first change of each stream that was written at a time (with a time zone)
        or later. ``strict``: nothing of a generation is read before all that its switch has closed is. ``skip``: bad
        records to leave out, as ``skip`` takes them.

        Raises PositionsError, ValueError for another ``start``, ChangeLogNotFoundError, LogError.
        """
        if start not in {"oldest", "latest"} and not (isinstance(start, datetime) and start.tzinfo is not None):
            raise ValueError(f"start must be 'oldest', 'latest' or a datetime with a time zone, got {start!r}")
        self._log, self._name, self._id = log, name, reader
        self._progress = ReaderProgress(name, strict=strict)
        self._assigned: dict[int, StreamReading] = {}
        self._wanted_before: Mapping[int, StreamReading] = {}
        self._stale: set[int] = set()
        self._bad: dict[int, BadRecordError] = {}
        self._skipped: set[LogPosition] = set()
        self._reader: PartitionReader | None = None
        self._tail = GenerationTail(log, name, f"reader-{reader}")
        try:
            self._topic, self._topic_id = self._find()
            for place in skip:
                self.skip(place)
            self._begin(positions or {}, start)
            known = self._tail.state.readers.get(name, {}).get(reader)
            self._reported = None if known is None else known.read_epoch
            self._report()
            self._reader = PartitionReader(
                log.connection,
                {},
                client_id=f"headgate-{reader}",
                queued_max_messages_kbytes=QUEUED_KBYTES_MAX,
                fetch_wait_max_ms=20,
            )
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        name: str,
        reader: str,
        *,
        bootstrap: str,
        cluster: str = "headgate",
        kafka: dict[str, KafkaProperty] | None = None,
        positions: Mapping[str, int] | None = None,
        start: Start = "oldest",
        strict: bool = False,
        skip: Iterable[str] = (),
    ) -> Self:
        """Open a reader of change log ``name`` on a Kafka cluster; for the other arguments see the class."""
        return cls._opened(
            lambda log: cls(log, name, reader, positions=positions, start=start, strict=strict, skip=skip),
            *(bootstrap, cluster, kafka),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def positions(self) -> dict[str, int]:
        """Where to continue after everything that ``poll`` has returned: next offset by stream, -1 for a finished one.

        Store it (as JSON, for example) in one transaction with what you did, then ``commit``.
        """
        return self._progress.positions

    @property
    def moved(self) -> dict[str, int]:
        """Those of ``positions`` that have changed since the last ``commit``, for stores with a row per stream."""
        return self._progress.moved

    @property
    def gaps(self) -> list[Gap]:
        """What was deleted or retired before it was read; each gap is logged, too. The newest 1 000 are kept."""
        return list(self._progress.gaps)

    @property
    def refused(self) -> int:
        """Records that follow their writer's END, and were not returned."""
        return self._progress.refused

    @property
    def stopped(self) -> str | None:
        """Why changes may be missing from what ``poll`` returns, although Kafka has them; None if none are.

        A Kafka client that stops reading is replaced, and nothing is lost. Until then the reader is behind.
        """
        return self._reading.stopped or self._tail.stopped

    def poll(self, timeout_seconds: float) -> list[ReadChange]:
        """Return the next changes, at most about 1 000. Waits at most so long for the first one.

        An error loses nothing: what was fetched before it is returned first, and the next call raises it. After a
        LogError, poll again to continue. A BadRecordError is raised until the record is left out (``skip``).
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._raise_pending()
            self._follow()
            changes = self._fetch(max(0.0, min(deadline - time.monotonic(), FOLLOW_SECONDS)))
            if changes or (time.monotonic() >= deadline and not self._has_pending()):
                return changes

    def commit(self, positions: Mapping[str, int] | None = None) -> None:
        """Report that positions are stored: all that ``poll`` has returned, or ``positions`` as they were before.

        The owner of the change log may then retire what lies before them. Call it after every ``poll``, also after one
        that returned nothing: a reader passes the ends of streams without a change. Raises LogError, PositionsError.
        """
        self._progress.commit(positions)
        self._report()

    def skip(self, place: str) -> None:
        """Leave out one bad record, by its topic/partition/offset. A record that can be read is returned nevertheless.

        Raises PlaceError for a text that names no record, ReaderError for another topic.
        """
        found = LogPosition.parse(place)
        if found.topic != self._topic:
            raise ReaderError(
                f"skip: {place} is not a record of change log {self._name!r}, whose topic is {self._topic}"
            )
        self._skipped.add(found)
        if found.partition in self._bad and self._bad[found.partition].place == str(found):
            del self._bad[found.partition]
            self._progress.unblock(found.partition)

    def lag(self) -> tuple[StreamLag, ...]:
        """How far the reader is behind in each stream that it has not read to its end. Raises LogError."""
        unread = sorted(self._progress.unread, key=lambda each: (each.stream.generation, each.stream.start))
        ends = self._ends({each.stream.partition for each in unread if each.end is None})
        fetched = {id(each) for each in self._progress.fetches().values()}
        return tuple(
            StreamLag(
                stream=str(each.stream.id),
                generation=each.stream.generation,
                partition=each.stream.partition,
                position=each.next_offset,
                end=(end := ends[each.stream.partition] if each.end is None else each.end),
                lag=max(0, end - each.next_offset),
                is_waiting=id(each) not in fetched,
            )
            for each in unread
        )

    def close(self) -> None:
        """Stop reading. What the reader has not read is not retired until ``forget``. Idempotent."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        self._tail.close()
        self._close_own_log()

    def forget(self) -> None:
        """Unregister the reader, so that it no longer holds back the retirement of streams. Raises LogError."""
        self._tail.say(Fact(ReaderKey(self._name, self._id), None))

    # --- beginning ---

    def _find(self) -> tuple[str, str | None]:
        """The topic of the change log, and Kafka's id of it."""
        self._tail.read_to_end()
        record = self._tail.state.sets.get(self._name)
        if record is None:
            raise ChangeLogNotFoundError(
                f"change log {self._name!r} does not exist in cluster {self._log.cluster!r}. Create it with `headgate "
                "generation create`, or correct the name or the cluster"
            )
        return record.topic, record.topic_id

    def _begin(self, positions: Mapping[str, int], start: Start) -> None:
        self._learn()
        if positions:
            self._progress.resume(positions)
        elif start == "oldest":
            self._progress.begin({})
        else:
            partitions = {each.stream.partition for each in self._progress.unread}
            offsets = self._ends(partitions)
            if isinstance(start, datetime):
                asked = OffsetSpec.for_timestamp(round(start.timestamp() * 1000))
                found = self._ask(partitions, asked, f"asking where {self._topic} is at {start.isoformat()}")
                offsets |= {partition: offset for partition, offset in found.items() if offset >= 0}
            self._progress.begin(offsets)
        self._log_gaps()

    # --- following the generations ---

    def _follow(self) -> None:
        while self._tail.follow(0.0):
            pass
        self._check_exists()
        self._learn()
        self._assign()
        self._log_gaps()

    def _check_exists(self) -> None:
        record = self._tail.state.sets.get(self._name)
        if record is None:
            raise ChangeLogNotFoundError(f"change log {self._name!r} was deleted while it was read")
        if (record.topic, record.topic_id or self._topic_id) != (self._topic, self._topic_id or record.topic_id):
            raise ChangeLogNotFoundError(
                f"change log {self._name!r} was deleted while it was read, and another one of this name was created. "
                "Start a new reader without positions"
            )

    def _learn(self) -> None:
        try:
            self._progress.learn(self._tail.state)
        except MapError as error:
            raise ReaderError(f"change log {self._name!r}: {error}") from error

    def _report(self) -> None:
        epoch = self._progress.committed_epoch
        if epoch != self._reported:
            self._tail.say(Fact(ReaderKey(self._name, self._id), ReaderReported(epoch, wall_ms())))
            self._reported = epoch

    def _log_gaps(self) -> None:
        for gap in self._progress.new_gaps():
            _log.warning(
                "change log %s, reader %s: offsets %d to %d of stream %s (partition %s) were not read: %s",
                *(self._name, self._id, gap.first, gap.last - 1, gap.stream, gap.partition, gap.what),
            )

    def _assign(self) -> None:
        wanted = self._progress.fetches()
        if wanted is self._wanted_before and not self._stale:
            return
        kept = {
            number
            for number, each in self._assigned.items()
            if wanted.get(number) is each and number not in self._stale
        }
        gone, new = self._assigned.keys() - kept, wanted.keys() - kept
        if gone:
            self._reading.unassign([Partition(self._topic, number) for number in gone])
        if new:
            self._reading.assign({Partition(self._topic, number): wanted[number].next_offset for number in new})
        self._assigned, self._wanted_before = dict(wanted), wanted
        self._stale.clear()

    # --- records ---

    def _fetch(self, timeout_seconds: float) -> list[ReadChange]:
        if not self._assigned:
            time.sleep(min(timeout_seconds, FOLLOW_SECONDS))
            return []
        try:
            messages = self._reading.poll(MESSAGES_MAX, timeout_seconds)
        except OffsetGoneError as gone:
            self._stale.add(gone.partition.number)
            self._check_range(gone.partition.number)
            messages = []
        changes = [change for message in messages if (change := self._take(message)) is not None]
        for at, end in self._reading.take_reached().items():
            self._progress.reached(at.number, end)
        return changes

    @property
    def _reading(self) -> PartitionReader:
        if self._reader is None:
            raise ReaderError(f"the reader of change log {self._name!r} is closed. Open a new one")
        return self._reader

    def _take(self, message: Message) -> ReadChange | None:
        """The change that a message is. A bad record is raised by a later ``poll``."""
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        if not self._is_next(partition, offset):
            return None
        try:
            marker = marker_in(message.headers())
            writer, position = writer_in(message.headers())
        except NotOursError as why:
            self._set_aside(LogPosition(self._topic, partition, offset), why)
            return None
        reading = self._progress.take(partition, offset, writer, marker)
        if reading is None:
            return None
        kind, timestamp_ms = message.timestamp()
        return ReadChange(
            key=message.key(),
            value=message.value(),
            writer=writer,
            position=position,
            partition=partition,
            offset=offset,
            generation=reading.stream.generation,
            headers=given_headers(message.headers()),
            stream=str(reading.stream.id),
            timestamp_ms=timestamp_ms if kind else None,
        )

    def _is_next(self, partition: int, offset: int) -> bool:
        """Whether the record is of the stream that is read there; an offset behind its end shows that it is over."""
        self._progress.reached(partition, offset)
        return partition in self._assigned and self._progress.is_awaited(partition, offset)

    def _set_aside(self, place: LogPosition, why: NotOursError) -> None:
        if place in self._skipped:
            _log.warning("change log %s, reader %s: skipped %s on request: %s", self._name, self._id, place, why)
            self._progress.reached(place.partition, place.offset + 1)
            return
        self._bad[place.partition] = BadRecordError(place, str(why))
        self._progress.block(place.partition)
        self._stale.add(place.partition)  # what was fetched behind it is fetched again

    def _check_range(self, partition: int) -> None:
        """The partition does not have the next offset: it was deleted, which is a gap, or was never there."""
        reading = self._assigned.get(partition)
        if reading is None:
            return
        what = f"asking where {self._topic} begins and ends"
        start = self._ask({partition}, OffsetSpec.earliest(), what)[partition]
        end = self._ask({partition}, OffsetSpec.latest(), what)[partition]
        if reading.next_offset > end:
            raise ReaderError(
                f"change log {self._name!r}: topic {self._topic}, partition {partition} ends at offset {end}, before "
                f"the reader's position {reading.next_offset} of stream {reading.stream.id}. The topic was deleted and "
                "created again, or has lost records. Start a new reader without positions"
            )
        self._progress.deleted(partition, start)

    def _has_pending(self) -> bool:
        return bool(self._bad or self._stale)

    def _raise_pending(self) -> None:
        for bad in self._bad.values():
            raise bad

    def _ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Up to where everything is committed or aborted, as a reader sees it."""
        what = f"asking for the ends of {self._topic}"
        return self._ask(partitions, OffsetSpec.latest(), what, IsolationLevel.READ_COMMITTED)

    def _ask(
        self,
        partitions: Iterable[int],
        spec: OffsetSpec,
        what: str,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        places = [Partition(self._topic, number) for number in partitions]
        answers = offsets_of(self._log.connection, places, spec, what, isolation)
        return {at.number: offset for at, offset in answers.items()}
