"""``headgate serve ingest``: copies keyed topics into a change log, each record once and per key in order.

A partition of an input topic is one writer of the change log (writer.py), and an offset is a position. The change log
stores how far a partition was copied, in the transaction of the copied records, and a process that takes a partition
over reads it there. Processes share the partitions by a consumer group, which holds no offsets. A process that has lost
a partition and does not know it yet is fenced by the writer's id.

There are two clients: a *member* of the group, which reads nothing, and a *reader*. The reader is assigned a partition
once its writer is admitted, starting behind the position on the change log. A writer that cannot write, during a switch
or without a broker, holds up its own partition only, and the process is not ready.

A record that cannot be a change ends the process with its topic, partition and offset.

If partitions are added to an input topic, keys move between partitions and their order is lost, so ingest stops. The
number of partitions that a topic had when it was first copied is kept in the group, as the metadata of a committed
offset that nothing reads as an offset.
"""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException, Message, TopicPartition
from prometheus_client import CollectorRegistry

from headgate.eventlog.connection import (
    ADMIN_SECONDS_MAX,
    GROUP_PASSING_CODES,
    BrokerUnreachableError,
    KafkaConnection,
)
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError, NewerSchemaError, Partition
from headgate.generation.changelog.core.ingesting import keyless, writer_of
from headgate.generation.changelog.shell.change_checks import ChangeTooLargeError
from headgate.generation.changelog.shell.ingest_clients import (
    READER_BYTES_MAX,
    judge_member,
    open_clients,
    source_error,
)
from headgate.generation.changelog.shell.ingest_metrics import IngestMetrics, TopicFigures
from headgate.generation.changelog.shell.shared_tail import TailCrashedError
from headgate.generation.changelog.shell.wire import ReservedHeaderError
from headgate.generation.changelog.shell.writer import (
    ChangeRefusedError,
    ChangeWriter,
    LogGoneError,
    WriterCrashedError,
    WriterLook,
    WriterReplacedError,
)
from headgate.observability.logs import logger
from headgate.observability.probes import Probes
from headgate.records.places import LogPosition
from headgate.sources.offsets import SourceError, SourceUnreachableError
from headgate.sources.topic_ids import MissingTopics, TopicReplacedError, ids_of_existing, topic_ids


class PartitionsGrownError(SourceError):
    """An input topic has other partitions than when it was first copied."""


class PartitionsNoted:
    """Of one group. ``ids``: topic → Kafka's id of it; a topic that was made again may have as many as it likes."""

    def __init__(self, connection: KafkaConnection, member: Any, ids: Mapping[str, str | None]) -> None:
        self._connection, self._member, self._ids = connection, member, ids
        self._known: dict[str, int] = {}
        self._is_noted = False

    def read(self) -> None:
        """Read the positions that the group has committed. Raises LogError."""
        for each in self._asked():
            topic_id, _, count = (each.metadata or "").partition(" ")
            if count.isdigit() and topic_id == str(self._ids[each.topic]):
                self._known[each.topic] = int(count)
        self._is_noted = self._known.keys() == self._ids.keys()

    def _asked(self) -> list[TopicPartition]:
        """What the group answers, once its coordinator has it. Raises LogError."""
        deadline = time.monotonic() + ADMIN_SECONDS_MAX
        while True:
            try:
                return list(
                    self._member.committed([TopicPartition(topic, 0) for topic in self._ids], ADMIN_SECONDS_MAX)
                )
            except KafkaException as error:
                is_passing = error.args[0].code() in GROUP_PASSING_CODES and time.monotonic() < deadline
                # A missing permission is reported separately; the answer itself just never arrives.
                judge_member(self._connection, self._member.poll(RETRY_SECONDS if is_passing else 0))
                if not is_passing:
                    raise self._connection.failed("sharing the topics in a group", error) from error

    def check(self) -> None:
        """Compare with what the brokers report. Raises PartitionsGrownError, LogError."""
        for topic in self._ids:
            try:
                described = self._member.list_topics(topic, ADMIN_SECONDS_MAX).topics.get(topic)
            except KafkaException as error:
                raise self._connection.failed(f"asking for the partitions of {topic}", error) from error
            count = 0 if described is None else len(described.partitions)
            known = self._known.setdefault(topic, count) if count else count
            if count > known:
                raise PartitionsGrownError(
                    f"topic {topic} had {known} partitions when it was first copied and has {count} now: keys have "
                    "moved between them, and the order of their changes is unknown. Let its producer write to a new "
                    "topic, with a fresh copy of its table, and copy that into a new change log"
                )

    def note(self) -> None:
        """Once this process is of the group; again while that fails (a rebalance)."""
        if self._is_noted or self._known.keys() != self._ids.keys():
            return
        texts = [
            TopicPartition(topic, 0, 0, metadata=f"{self._ids[topic]} {count}")
            for topic, count in sorted(self._known.items())
        ]
        try:
            self._member.commit(offsets=texts, asynchronous=False)
        except KafkaException:
            return  # The next look tries again.
        self._is_noted = True


LOOP: Final = "ingest"

OUTBOX_CHANGES: Final = 2_000
"""Of each partition: with the default of ten thousand, many partitions would need much memory during a switch."""

OUTBOX_BYTES: Final = 32 * 1024 * 1024
"""The same for large records: twice what one look can bring (READER_BYTES_MAX)."""

RESUME_CHANGES: Final = 500
RESUME_BYTES: Final = 4 * 1024 * 1024
"""Fewer waiting, and a partition that was paused is read again."""

READ_MESSAGES: Final = 500
"""Of one look. A partition is paused while an outbox could not take as many more."""

LOOK_SECONDS: Final = 0.05
"""How long one look waits for records."""

FIGURES_SECONDS: Final = 1.0
"""How often metrics and readiness are updated."""

IDS_SECONDS: Final = 10.0
"""How often a topic is checked for having been deleted and re-created."""

RETRY_SECONDS: Final = 1.0
"""Delay before a partition is retried whose writer could not start or was replaced."""

REPLACED_MAX: Final = 10
"""A member that has lost a partition and does not know it may take the id once more; no member continues with it."""


class RecordRefusedError(SourceError):
    """A record that cannot be a change. Nothing is skipped silently, so the process ends."""


class _Source:
    """One partition that the group has given to this process."""

    def __init__(self) -> None:
        self.writer: ChangeWriter | None = None
        self.is_read = False
        self.is_paused = False
        self.replaced = 0
        self.retry_at = 0.0
        self.waits_for = ""


Partitions = Collection[tuple[str, int]]


class IngestService:
    """One process. ``run`` returns when it was stopped."""

    def __init__(
        self,
        log: KafkaLog,
        log_name: str,
        topics: Collection[str],
        *,
        name: str,
        skip: Collection[LogPosition] = (),
        probes: Probes,
        registry: CollectorRegistry,
    ) -> None:
        """Nothing is read or written before ``run``."""
        self._log, self._log_name, self._name = log, log_name, name
        self._topics, self._skip = sorted(set(topics)), frozenset(skip)
        self._probes = probes
        self._metrics = IngestMetrics(registry, self._topics)
        self._sources: dict[tuple[str, int], _Source] = {}
        self._ids: Mapping[str, str | None] = {}
        self._missing = MissingTopics()
        self._figures_at = self._ids_at = 0.0
        self._is_asked = self._has_joined = False
        self._say = logger(service=LOOP)

    def stop(self) -> None:
        """End; safe in a signal handler, and when repeated."""
        self._is_asked = True

    def run(self) -> bool:
        """Copy until stopped; always a clean stop. Raises SourceError, LogError."""
        self._probes.expect(LOOP, "looking for the topics")
        self._ids = ids_of_existing(self._log.connection, self._topics)
        self._member, self._reader = open_clients(self._log, self._log_name, self._name)
        self._partitions = PartitionsNoted(self._log.connection, self._member, self._ids)
        try:
            self._partitions.read()
            self._partitions.check()
            self._member.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self._is_asked:
                self._turn()
        finally:
            self._leave(list(self._sources))
            self._member.close()
            self._reader.close()
        return True

    def _turn(self) -> None:
        self._probes.turned(LOOP)
        judge_member(self._log.connection, self._member.poll(0))
        for at, source in sorted(self._sources.items()):
            self._guarded(at, source, self._tend)
        for message in self._read():
            self._take(message)
        now = time.monotonic()
        if now >= self._ids_at:
            self._ids_at = now + IDS_SECONDS
            self._check_ids()
        if now >= self._figures_at:
            self._figures_at = now + FIGURES_SECONDS
            if self._has_joined:
                self._partitions.note()
            self._show()

    def _read(self) -> list[Message]:
        try:
            return self._reader.poll(READ_MESSAGES, LOOK_SECONDS)
        except LogError as error:
            raise source_error(error) from error

    # --- whose a partition is ---

    def _on_assign(self, member: Any, partitions: list[TopicPartition]) -> None:
        member.incremental_assign(partitions)
        member.pause(partitions)
        self._has_joined = True
        for each in partitions:
            self._sources[each.topic, each.partition] = _Source()
        self._say.info("partitions given", partitions=[f"{each.topic}/{each.partition}" for each in partitions])

    def _on_revoke(self, member: Any, partitions: list[TopicPartition]) -> None:
        """Leave what is not committed yet to the partition's next process, which begins behind what is."""
        self._leave([(each.topic, each.partition) for each in partitions])
        member.incremental_unassign(partitions)
        self._say.info("partitions taken", partitions=[f"{each.topic}/{each.partition}" for each in partitions])

    def _leave(self, partitions: Partitions) -> None:
        for at in partitions:
            source = self._sources.pop(at, None)
            if source is not None:
                self._end(at, source)

    def _end(self, at: tuple[str, int], source: _Source) -> None:
        if source.is_read:
            self._reader.unassign([Partition(*at)])
            source.is_read = source.is_paused = False
        writer, source.writer = source.writer, None
        if writer is not None:
            writer.close()

    # --- one partition ---

    def _guarded(self, at: tuple[str, int], source: _Source, act: Any) -> None:
        """Use a partition's writer. One that has ended is opened again, unless an operator must act first."""
        try:
            act(at, source)
        except (NewerSchemaError, WriterCrashedError, TailCrashedError, LogGoneError):
            raise
        except ChangeRefusedError as error:
            place = LogPosition(*at, error.position)
            raise RecordRefusedError(
                f"topic {place.topic}, partition {place.partition}, offset {place.offset}: {error}. "
                f"To skip this record, start with --skip {place}"
            ) from error
        except WriterReplacedError as error:
            source.replaced += 1
            if source.replaced > REPLACED_MAX:
                raise WriterReplacedError(f"{error}: it is not one of the group's processes. End it") from error
            self._later(at, source, error)
        except (LogError, SourceUnreachableError) as error:
            self._later(at, source, error)

    def _later(self, at: tuple[str, int], source: _Source, error: Exception) -> None:
        self._waits(at, source, str(error))
        source.retry_at = time.monotonic() + RETRY_SECONDS
        self._end(at, source)

    def _tend(self, at: tuple[str, int], source: _Source) -> None:
        topic, partition = at
        if source.writer is None:
            if time.monotonic() >= source.retry_at:
                writer = writer_of(self._name, topic, partition, self._ids[topic])
                source.writer = ChangeWriter(
                    self._log,
                    self._log_name,
                    writer,
                    outbox_changes=OUTBOX_CHANGES,
                    outbox_bytes=OUTBOX_BYTES,
                )
            return
        look = source.writer.look()
        if not source.is_read:
            source.waits_for = look.last_error
            if look.is_started:
                self._begin(at, source, look)
            return
        self._waits(at, source, look.last_error)
        if not source.is_paused and is_full(look):
            self._reader.pause(Partition(*at))
            source.is_paused = True
        elif source.is_paused and look.waiting < RESUME_CHANGES and look.waiting_bytes < RESUME_BYTES:
            self._reader.resume(Partition(*at))
            source.is_paused = False

    def _waits(self, at: tuple[str, int], source: _Source, reason: str) -> None:
        """Keep why a partition is not copied at the moment, or empty. Log a new reason."""
        if reason and reason != source.waits_for:
            self._say.warning("partition waits", topic=at[0], partition=at[1], reason=reason)
        source.waits_for = reason

    def _begin(self, at: tuple[str, int], source: _Source, look: WriterLook) -> None:
        self._reader.assign({Partition(*at): look.position + 1})
        source.is_read = True
        self._say.info("partition started", topic=at[0], partition=at[1], after=look.position)

    def _take(self, message: Any) -> None:
        at = (message.topic(), message.partition())
        source = self._sources.get(at)
        if source is None or source.writer is None or not source.is_read:
            return  # it was fetched before the partition went
        place = LogPosition(*at, message.offset())
        figures = self._metrics.topics[place.topic]
        if place in self._skip:
            figures.skipped += 1
            self._say.warning("record skipped because of --skip", place=str(place))
            return
        if message.key() is None:
            self._refuse(source.writer, keyless(place))

        def write(_at: tuple[str, int], source: _Source) -> None:
            if source.writer is not None:
                headers = tuple(message.headers() or ())
                figures.changes += source.writer.write(message.key(), message.value(), place.offset, headers)

        try:
            self._guarded(at, source, write)
        except (ReservedHeaderError, ChangeTooLargeError) as error:
            said = f"topic {place.topic}, partition {place.partition}, offset {place.offset}: {error}. "
            self._refuse(source.writer, f"{said}To skip this record, start with --skip {place}")

    def _refuse(self, writer: ChangeWriter | None, said: str) -> None:
        """End with an error, after all records before this one are written: each start gets as far as it can."""
        if writer is not None:
            with suppress(LogError):
                writer.flush()
        raise RecordRefusedError(said)

    # --- what brokers report ---

    def _check_ids(self) -> None:
        with suppress(SourceUnreachableError, BrokerUnreachableError):
            self._partitions.check()
            found = topic_ids(self._log.connection, self._topics)
            gone = self._missing.gone(self._ids, found)
            for topic, known in self._ids.items():
                if topic in gone or found.get(topic, known) != known:
                    raise TopicReplacedError(
                        f"topic {topic} was deleted, or created again: its id was {known} and is {found.get(topic)}. "
                        "To copy it as a new topic, from its oldest record, start this process again"
                    )

    def _show(self) -> None:
        waiting: dict[tuple[str, int], str] = {}
        counted = {topic: TopicFigures(behind=0) for topic in self._topics}
        for at, source in sorted(self._sources.items()):
            if source.writer is None or not source.is_read or source.waits_for:
                waiting[at] = source.waits_for or "its writer has not started"
            self._count(counted[at[0]], at, source)
        for topic, now in counted.items():
            figures = self._metrics.topics[topic]
            figures.partitions, figures.waiting, figures.behind = now.partitions, now.waiting, now.behind
        if not self._has_joined:
            self._probes.unready(LOOP, "joining the group")
        elif self._reader.stopped is not None:
            self._probes.unready(LOOP, f"the topics cannot be read: {self._reader.stopped}")
        elif waiting:
            (topic, partition), reason = next(iter(waiting.items()))
            self._probes.unready(LOOP, f"{len(waiting)} partitions wait; {topic}/{partition}: {reason}")
        else:
            self._probes.ready(LOOP)

    def _count(self, figures: TopicFigures, at: tuple[str, int], source: _Source) -> None:
        """Add a partition. A topic is not known to be behind by any number while one of its partitions is not."""
        look: WriterLook | None = None
        if source.writer is not None and source.is_read:
            with suppress(LogError):
                look = source.writer.look()
        end = self._reader.ends.get(Partition(*at))
        if look is not None:
            figures.partitions += 1
            figures.waiting += look.waiting
        if look is None or end is None or figures.behind is None:
            figures.behind = None
        else:
            figures.behind += max(0, end - look.position - 1)


def is_full(look: WriterLook) -> bool:
    """Whether a writer could not take one look's records more, so that ``write`` would wait and hold up all others."""
    return look.waiting > OUTBOX_CHANGES - READ_MESSAGES or look.waiting_bytes > OUTBOX_BYTES - READER_BYTES_MAX
