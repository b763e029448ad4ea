"""Read or write a change log with confluent-kafka and fastavro alone, as docs/change-log-format.md describes it.

    python examples/plain_change_log.py read localhost:9092 orders billing
    python examples/plain_change_log.py write localhost:9092 orders orders-0

``read`` prints each change as a JSON object. ``write`` takes one from each line of standard input, such as
{"key": "17", "value": "paid"}; the number of the line is the change's position. It answers switches while it waits.

This is the model for a program in another language, so it stays short: ``read`` stores no positions, and ``write``
holds everything back during a switch, not only the ranges that change.
"""

import argparse
import io
import json
import queue
import secrets
import struct
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

import fastavro
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

SCHEMAS = Path(__file__).parents[1] / "schemas"
WRITER_REPORTED, READER_REPORTED = 2602, 2702
SECONDS_MAX = 30.0
BATCH_MAX = 500
MASK = (1 << 64) - 1


class LifeOverError(Exception):
    """This life of a writer may write no more. Begin another one."""


# --- tokens ---


def rotate(value: int, bits: int) -> int:
    """Rotate 64 bits to the left."""
    return (value << bits | value >> 64 - bits) & MASK


def mix(value: int, first: int, bits: int, second: int) -> int:
    """One half of a block, before it is combined with the hash."""
    return rotate(value * first & MASK, bits) * second & MASK


def finish(value: int) -> int:
    """Spread the last bits over all of them."""
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def signed_tail(tail: bytes) -> int:
    """Up to eight bytes, each one signed."""
    value = 0
    for number, byte in enumerate(tail):
        value ^= (byte - 256 if byte > 127 else byte) << 8 * number
    return value & MASK


def token_of(key: bytes) -> int:
    """Murmur3 x64-128, its first half, in Cassandra's variant."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    whole = len(key) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", key, at)
        h1 = ((rotate(h1 ^ mix(k1, c1, 31, c2), 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 = ((rotate(h2 ^ mix(k2, c2, 33, c1), 31) + h1) * 5 + 0x38495AB5) & MASK
    h2 ^= mix(signed_tail(key[whole + 8 :]), c2, 33, c1)
    h1 ^= mix(signed_tail(key[whole : whole + 8]), c1, 31, c2)
    h1, h2 = h1 ^ len(key), h2 ^ len(key)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    token = (finish(h1) + finish(h2)) & MASK
    token -= 1 << 64 if token >> 63 else 0
    return (1 << 63) - 1 if token == -(1 << 63) else token


# --- control records ---


def load_schemas() -> dict[int, Any]:
    """Schema id → parsed schema."""
    ids = json.loads((SCHEMAS / "ids.json").read_text(encoding="utf-8"))
    return {int(number): fastavro.schema.load_schema(SCHEMAS / one["schema"]) for number, one in ids.items()}


def partition_count(client: Any, topic: str) -> int:
    """Of a topic that exists."""
    found = client.list_topics(topic, timeout=SECONDS_MAX).topics[topic]
    if found.error is not None or not found.partitions:
        sys.exit(f"topic {topic} does not exist: {found.error}")
    return len(found.partitions)


def consumer_of(bootstrap: str) -> Consumer:
    """Reads assigned partitions. An offset that is gone is an error."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain-change-log",  # never joined
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def messages_of(consumer: Consumer, timeout: float) -> tuple[list[Any], list[Any]]:
    """What has come: records, and ends of partitions. Raises KafkaException."""
    found = consumer.consume(BATCH_MAX, timeout)
    for each in found:
        passes = each.error() is None or each.error().code() in {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT}
        if not passes:
            raise KafkaException(each.error())
    ends = [each for each in found if each.error() is not None and each.error().code() == KafkaError._PARTITION_EOF]
    return [each for each in found if each.error() is None], ends


class Control:
    """The control records of one change log, as far as they are read."""

    def __init__(self, bootstrap: str, cluster: str, name: str) -> None:
        self.cluster, self.name = cluster, name
        self._topic = f"{cluster}.generation"
        self._schemas = load_schemas()
        self._consumer = consumer_of(bootstrap)
        self._partition = crc32(name.encode()) % partition_count(self._consumer, self._topic)
        at = TopicPartition(self._topic, self._partition)
        begin, _ = self._consumer.get_watermark_offsets(at, timeout=SECONDS_MAX)
        self._consumer.assign([TopicPartition(self._topic, self._partition, begin)])
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._position = begin
        self._records: dict[tuple[str, ...], dict[str, Any]] = {}

    @property
    def set(self) -> dict[str, Any] | None:
        """The newest SetRecorded; None if the change log does not exist."""
        found = self._records.get((self.name,))
        return found if found is not None and found["topic"] else None

    @property
    def lives(self) -> list[tuple[str, int]]:
        """Lives of writers that have reported."""
        return [(key[2], int(key[3])) for key in self._records if len(key) == 4 and key[1] == "writer"]

    @property
    def generations(self) -> list[dict[str, Any]]:
        """Those that were committed, in the order of their epochs."""
        found = [] if self.set is None else self.set["generations"]
        return [each for each in found if each["phase"] not in {"prepared", "aborted"}]

    def streams(self, generation: dict[str, Any]) -> list[dict[str, Any]]:
        """The streams of a generation, in the order of their ranges."""
        epoch = str(generation["epoch"])
        chunks = (self._records[self.name, epoch, str(number)] for number in range(generation["chunks"]))
        return sorted((each for chunk in chunks for each in chunk["streams"]), key=lambda each: each["start"])

    def follow(self, timeout: float = 0.0) -> None:
        """Read what is new."""
        records, ends = messages_of(self._consumer, timeout)
        for each in records:
            self._adopt(each)
        for each in [*records, *ends]:
            self._position = max(self._position, each.offset() + (each.error() is None))

    def read_to_end(self) -> None:
        """Read up to the end that the partition has now."""
        at = TopicPartition(self._topic, self._partition)
        _, end = self._consumer.get_watermark_offsets(at, timeout=SECONDS_MAX)
        while self._position < end:
            self.follow(0.1)

    def say(self, key: tuple[str, ...], schema_id: int, record: dict[str, Any]) -> None:
        """Write one record, and wait until it is written."""
        body = io.BytesIO()
        fastavro.schemaless_writer(body, self._schemas[schema_id], record)
        text = "/".join(quote(part, safe="._-~") for part in key)
        value = struct.pack(">bI", 0, schema_id) + body.getvalue()
        self._producer.produce(self._topic, value, text, self._partition)
        if self._producer.flush(SECONDS_MAX):
            sys.exit(f"{self._topic} cannot be written")

    def _adopt(self, message: Any) -> None:
        key = tuple(map(unquote, message.key().decode().split("/")))
        is_chunk = len(key) == 3 and key[1].isdecimal()
        is_report = len(key) == 4 and key[1] == "writer"
        if key[0] != self.name or not (len(key) == 1 or is_chunk or is_report):
            return
        if message.value() is None:
            self._records.pop(key, None)
            return
        magic, schema_id = struct.unpack_from(">bI", message.value())
        if magic != 0 or schema_id not in self._schemas:
            sys.exit(f"{message.key()!r} was written with schema {schema_id}, by a newer Headgate")
        record: Any = fastavro.schemaless_reader(io.BytesIO(message.value()[5:]), self._schemas[schema_id], None)
        known = self._records.get(key, {})
        if record.get("owner_rev", 0) >= known.get("owner_rev", -1):
            self._records[key] = record


# --- reading ---


class Reading:
    """How far one stream is read."""

    def __init__(self, stream: dict[str, Any]) -> None:
        self.stream = stream
        self.position: int = stream["start_offset"]
        self.closed_by: dict[str, Any] | None = None
        self.ended_by: set[tuple[int, str]] = set()

    @property
    def end(self) -> int | None:
        """Where it ends, once that is measured."""
        ends = {} if self.closed_by is None else self.closed_by["closed_ends"]
        return ends.get(str(self.stream["partition"]))

    def has_ended(self, writer: str) -> bool:
        """Whether a writer's END marker of the closing switch was passed."""
        return self.closed_by is not None and (self.closed_by["epoch"], writer) in self.ended_by

    @property
    def is_read(self) -> bool:
        """Whether nothing more of it can come."""
        if self.closed_by is None:
            return False
        cuts = self.closed_by["cuts"]
        by_markers = bool(cuts) and all(self.has_ended(cut["writer"]) for cut in cuts)
        return by_markers or (self.end is not None and self.position >= self.end)


class Reader:
    """Reads a change log from its oldest generation on."""

    def __init__(self, control: Control, bootstrap: str, reader: str) -> None:
        self._control, self._reader = control, reader
        self._consumer = consumer_of(bootstrap)
        self._readings: dict[str, Reading] = {}
        self._assigned: dict[int, Reading] = {}
        self._said = -1

    def poll(self, timeout: float) -> list[dict[str, Any]]:
        """The next changes."""
        self._control.follow()
        self._learn()
        self._register()
        self._assign()
        changes = []
        records, ends = messages_of(self._consumer, timeout)
        for each in records:
            reading = self._assigned[each.partition()]
            if not reading.is_read and each.offset() >= reading.position:
                changes += self._take(reading, each)
        for each in ends:
            self._assigned[each.partition()].position = each.offset()
        return changes

    def _learn(self) -> None:
        before: list[dict[str, Any]] = []
        for generation in self._control.generations:
            streams = self._control.streams(generation)
            for stream in streams:
                self._readings.setdefault(stream["id"], Reading(stream))
            for closed in {each["id"] for each in before} - {each["id"] for each in streams}:
                self._readings[closed].closed_by = generation
            before = streams

    def _register(self) -> None:
        unread = [each.closed_by["epoch"] for each in self._readings.values() if each.closed_by and not each.is_read]
        switches = [each["epoch"] for each in self._control.generations[1:]]
        read_epoch = min(unread) - 1 if unread else max(switches, default=0)
        if self._control.set is not None and read_epoch != self._said:
            report = {"read_epoch": read_epoch, "reported_ms": time.time_ns() // 1_000_000}
            self._control.say((self._control.name, "reader", self._reader), READER_REPORTED, report)
            self._said = read_epoch

    def _assign(self) -> None:
        wanted: dict[int, Reading] = {}
        for each in sorted(self._readings.values(), key=lambda each: each.stream["start_offset"]):
            parents = (self._readings.get(parent) for parent in each.stream["parents"])
            if not each.is_read and all(parent is None or parent.is_read for parent in parents):
                wanted.setdefault(each.stream["partition"], each)
        topic = "" if self._control.set is None else self._control.set["topic"]
        gone = [number for number, each in self._assigned.items() if wanted.get(number) is not each]
        new = [number for number, each in wanted.items() if self._assigned.get(number) is not each]
        if gone:
            self._consumer.incremental_unassign([TopicPartition(topic, number) for number in gone])
        if new:
            self._consumer.incremental_assign(
                [TopicPartition(topic, number, wanted[number].position) for number in new]
            )
        self._assigned = wanted

    def _take(self, reading: Reading, message: Any) -> list[dict[str, Any]]:
        reading.position = message.offset()
        if reading.is_read:  # its end was passed
            return []
        reading.position += 1
        headers = dict(message.headers() or [])
        place = f"{message.topic()}/{message.partition()}/{message.offset()}"
        if "headgate-writer" not in headers or "headgate-position" not in headers:
            sys.exit(f"{place}: no writer of a change log wrote this")
        writer = headers["headgate-writer"].decode()
        if "headgate-end" in headers:
            reading.ended_by.add((int(headers["headgate-end"]), writer))
            return []
        if reading.has_ended(writer):
            sys.exit(f"{place}: a change of {writer} is behind its END marker")
        value = message.value()
        return [
            {
                "key": message.key().decode(),
                "value": None if value is None else value.decode(),
                "writer": writer,
                "position": int(headers["headgate-position"]),
            }
        ]


# --- writing ---


class Written(NamedTuple):
    """A position record: up to ``position`` all is written; up to ``ahead`` what is in none of the ranges ``held``."""

    position: int = -1
    ahead: int = -1
    held: Sequence[Sequence[int]] = ()

    def has(self, position: int, token: int) -> bool:
        """Whether a change is written."""
        is_held = any(start < token <= end for start, end in self.held)
        return position <= self.position or (position <= self.ahead and not is_held)

    def after(self, position: int) -> "Written":
        """When all up to ``position`` is written, too."""
        return Written(position, self.ahead, self.held) if position < self.ahead else Written(position, position)


class Writer:
    """One life of a writer."""

    def __init__(self, control: Control, bootstrap: str, writer: str) -> None:
        """Begin the life. Waits until the owner has admitted it. Raises LifeOverError, KafkaException."""
        self._control, self._bootstrap, self._writer = control, bootstrap, writer
        control.read_to_end()
        known = [life for name, life in control.lives if name == writer]
        known += [each["life"] for each in self._admitted()]
        self._life = ((max(known, default=0) >> 20) + 1 << 20) + secrets.randbits(20)
        self._epoch = 0
        self._promised = 0
        self.written = Written()
        self._say()
        while not self._may_write():
            control.follow(0.1)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{control.cluster}.generation.{control.name}.{writer}",
                "transaction.timeout.ms": 5000,
                "acks": "all",
            }
        )
        self._producer.init_transactions(SECONDS_MAX)
        control.read_to_end()
        if not self._may_write():
            raise LifeOverError
        self.written = self._read_written()
        self._switch()

    def may_write(self) -> bool:
        """Follow the generations; whether changes may be written now. Raises LifeOverError."""
        self._control.follow()
        if not self._admitted():
            sys.exit(f"change log {self._control.name} was deleted")
        if not self._may_write():
            raise LifeOverError
        if self._current()["epoch"] != self._epoch:
            self._switch()
        asked = [each for each in self._set()["generations"] if each["phase"] == "prepared" and self._is_asked(each)]
        if not asked:
            self._promised = 0
        elif self._promised != asked[0]["epoch"]:
            self._promised = asked[0]["epoch"]
            self._say(promise=self.written.ahead)
        return not asked

    def write(self, changes: list[tuple[int, bytes, bytes | None]]) -> None:
        """Write changes (position, key, value) in one transaction. Raises KafkaException: begin another life."""
        self._producer.begin_transaction()
        after = self.written
        for position, key, value in changes:
            token = token_of(key)
            if not self.written.has(position, token):
                headers = [("headgate-writer", self._writer.encode()), ("headgate-position", b"%d" % position)]
                stream = self._streams[bisect_left(self._ends, token)]
                self._producer.produce(self._topic(), value, key, stream["partition"], headers=headers)
            after = after.after(max(position, after.position))
        record = json.dumps({"position": after.position, "ahead": after.ahead, "held": after.held})
        self._producer.produce(f"{self._topic()}.positions", record, self._writer, self._positions_partition())
        self._producer.commit_transaction(4.0)
        self.written = after

    def leave(self) -> None:
        """Stop for good."""
        self._say(promise=self.written.ahead, leaving=True)

    def _set(self) -> dict[str, Any]:
        return {} if self._control.set is None else self._control.set

    def _topic(self) -> str:
        return str(self._set()["topic"])

    def _admitted(self) -> list[dict[str, Any]]:
        return [each for each in self._set().get("writers", []) if each["writer"] == self._writer]

    def _may_write(self) -> bool:
        for each in self._admitted():
            if each["life"] > self._life:
                sys.exit(f"another process writes as {self._writer}")
            if each["life"] == self._life and each["is_over"]:
                raise LifeOverError
            return each["life"] == self._life and any(one["phase"] == "committed" for one in self._set()["generations"])
        return False

    def _is_asked(self, generation: dict[str, Any]) -> bool:
        return any(cut["writer"] == self._writer and cut["life"] == self._life for cut in generation["cuts"])

    def _current(self) -> dict[str, Any]:
        return next(each for each in self._control.generations if each["phase"] == "committed")

    def _switch(self) -> None:
        self._epoch, self._promised = self._current()["epoch"], 0
        self._streams = self._control.streams(self._current())
        self._ends = [each["end"] for each in self._streams]
        self._say()

    def _say(self, promise: int = -1, *, leaving: bool = False) -> None:
        report = {
            "epoch": self._epoch,
            "promised_epoch": self._promised,
            "promise": promise,
            "leaving": leaving,
            "loads": [],
            "reported_ms": time.time_ns() // 1_000_000,
        }
        key = (self._control.name, "writer", self._writer, str(self._life))
        self._control.say(key, WRITER_REPORTED, report)

    def _positions_partition(self) -> int:
        return crc32(self._writer.encode()) % 4

    def _read_written(self) -> Written:
        topic = f"{self._topic()}.positions"
        consumer = consumer_of(self._bootstrap)
        at = TopicPartition(topic, self._positions_partition())
        position, end = consumer.get_watermark_offsets(at, timeout=SECONDS_MAX)
        consumer.assign([TopicPartition(topic, at.partition, position)])
        newest = Written()
        while position < end:
            records, ends = messages_of(consumer, 0.5)
            for each in records:
                if each.key() == self._writer.encode():
                    newest = Written() if each.value() is None else Written(**json.loads(each.value()))
            position = max([position, *(each.offset() + 1 for each in records), *(each.offset() for each in ends)])
        consumer.close()
        return newest


# --- commands ---


def read(given: argparse.Namespace) -> None:
    """Print changes."""
    control = Control(given.bootstrap, given.cluster, given.change_log)
    control.read_to_end()
    reader = Reader(control, given.bootstrap, given.id)
    left = given.changes
    while left is None or left > 0:
        changes = reader.poll(0.2)
        for change in changes:
            print(json.dumps(change), flush=True)
        if left is not None:
            left -= len(changes)


def lines_of(stream: Any, into: "queue.Queue[str | None]") -> None:
    """Put each line into a queue, and None behind the last one."""
    for line in stream:
        into.put(line)
    into.put(None)


def write(given: argparse.Namespace) -> None:
    """Write the changes on standard input."""
    control = Control(given.bootstrap, given.cluster, given.change_log)
    lines: queue.Queue[str | None] = queue.Queue(BATCH_MAX)
    threading.Thread(target=lines_of, args=(sys.stdin, lines), daemon=True).start()
    waiting: list[tuple[int, bytes, bytes | None]] = []
    writer: Writer | None = None
    number, is_over = 0, False
    while writer is None or waiting or not is_over:
        while len(waiting) < BATCH_MAX and not is_over and not lines.empty():
            line = lines.get()
            is_over = line is None
            if line is not None:
                change = json.loads(line)
                value = change.get("value")
                waiting.append((number, change["key"].encode(), None if value is None else value.encode()))
                number += 1
        try:
            writer = writer or Writer(control, given.bootstrap, given.id)
            if writer.may_write() and waiting:
                writer.write(waiting)
                waiting.clear()
            else:
                time.sleep(0.01)
        except (LifeOverError, KafkaException) as error:
            print(f"begin another life: {error!r}", file=sys.stderr)
            writer = None
    writer.leave()


def main() -> None:
    """Read or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["read", "write"])
    parser.add_argument("bootstrap", help="host:port of a broker")
    parser.add_argument("change_log", help="name of the change log")
    parser.add_argument("id", help="name of the reader, or of the writer")
    parser.add_argument("--cluster", default="headgate", help="prefix of the control topics' names")
    parser.add_argument("--changes", type=int, help="read: stop after so many changes")
    given = parser.parse_args()
    (read if given.what == "read" else write)(given)


if __name__ == "__main__":
    main()
