"""A dump of all control topics as a text that people review: a line per record, the bytes and what they say.

    # digest of shard 0: <digest of the state after replay>
    <topic>/<partition>@<offset>  <key>  <framed value in base64, - for a tombstone>  <what it says>

Fields are separated by tabs (a key has none: names are percent-encoded). What counts is key and bytes; the
last field is for people, and checked to be what the bytes say. Offsets have holes, as on a topic.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headgate.eventlog.codec import CodecGarbage
from headgate.eventlog.log import Partition
from headgate.eventlog.schema_files import schemas
from headgate.records.base import Fact, Record
from headgate_lab.memory_log.log import MemoryBroker
from support.codec import decode, encode

DIGEST_WORDS = "# digest of shard "
DELETED = "deleted"
TOMBSTONE = "-"


class Line(msgspec.Struct, frozen=True):
    """One record: ``value`` are the bytes as on the topic, None for a tombstone; ``says`` is for people."""

    partition: Partition
    offset: int
    key: str
    value: bytes | None
    says: str

    def text(self) -> str:
        value = TOMBSTONE if self.value is None else base64.b64encode(self.value).decode()
        place = f"{self.partition.topic}/{self.partition.number}@{self.offset}"
        return f"{place}\t{self.key}\t{value}\t{self.says}"


class Dump(msgspec.Struct, frozen=True):
    """A whole log, and by shard the digest of the state that its replay must give."""

    digests: dict[int, str]
    lines: tuple[Line, ...]

    def text(self) -> str:
        head = [f"{DIGEST_WORDS}{shard}: {digest}" for shard, digest in sorted(self.digests.items())]
        return "\n".join([*head, *(line.text() for line in self.lines)]) + "\n"


def read_dump(path: Path) -> Dump:
    """The dump in a file. Raises ValueError for anything that is none."""
    digests, lines = {}, []
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.startswith(DIGEST_WORDS):
            shard, digest = text.removeprefix(DIGEST_WORDS).split(": ")
            digests[int(shard)] = digest
            continue
        place, key, value, says = text.split("\t")
        topic, number, offset = place.replace("@", "/").split("/")
        framed = None if value == TOMBSTONE else base64.b64decode(value, validate=True)
        lines.append(Line(Partition(topic, int(number)), int(offset), key, framed, says))
    return Dump(digests, tuple(lines))


def lines_of(broker: MemoryBroker) -> Iterator[Line]:
    """Every committed record on the log, in this version's bytes; garbage is what nobody can decode."""
    for partition in broker.partitions():
        for entry in broker.entries(partition, 0, broker.end_offset(partition), broker.end_offset(partition)):
            if not entry.committed():
                continue
            if isinstance(entry.key, str):
                says = said(partition.topic, entry.key, GARBAGE)
                yield Line(partition, entry.offset, entry.key, GARBAGE, says)
            else:
                key, value = encode(Fact(entry.key, entry.value))
                yield Line(partition, entry.offset, key.decode(), value, said(partition.topic, key.decode(), value))


GARBAGE = b'{"not": "in Confluent framing"}'
"""What stands where a history had somebody write rubbish."""


def said(topic: str, key: str, value: bytes | None) -> str:
    """What a record says: its type, version and fields, or why it says nothing."""
    try:
        _, record = decode(topic, key.encode(), value)
    except CodecGarbage as garbage:
        return f"garbage: {garbage.reason}"
    if record is None or value is None:
        return DELETED
    return f"{type(record).__name__} v{version_of(value)} {msgspec.json.encode(record).decode()}"


def version_of(value: bytes) -> int:
    """The schema version that a good value was written with."""
    return schemas().by_id[int.from_bytes(value[1:5], "big")].version


def record_in(says: str, kind: type[Record]) -> Record:
    """The record in a line's last field, fields it does not name at their default."""
    return msgspec.json.decode(says.split(" ", 2)[2], type=kind)
