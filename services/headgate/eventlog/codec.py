"""Facts as bytes and back: UTF-8 keys, Avro values in Confluent framing, nothing on null (a tombstone).

A value is ``0x00``, four bytes of schema id (big-endian), then the Avro body. The ids are fixed in
``schemas/ids.json``, so no registry is needed, and every topic tool that knows the framing can show which schema wrote
a value. A record is written at the log's schema level, if that loses nothing of it (levels.py). Anyone can write
anything to a topic: whatever bytes come in, ``decode`` gives a typed record, CodecGarbage (skipped and counted by the
reader) or NewerSchemaError (the role ends rather than misread it), and nothing else.
"""

import struct
from io import BytesIO
from typing import Final

import fastavro
import msgspec

from headgate.eventlog.log import LevelTooLowError, NewerSchemaError, SchemaLevel
from headgate.eventlog.schema_files import ID_FIRST, ID_LAST, SchemaSet, SchemaVersion
from headgate.records.base import Fact, Key, MalformedKeyError, Record
from headgate.records.control import OwnerAnnounced
from headgate.records.registry import parse_key

CONTENT_TYPE: Final = "application/avro"
"""Value of the content-type header of every record we write."""

MAGIC: Final = 0
"""First byte of Confluent framing, version 0: the one that topic tools decode (kcat, AKHQ, kafkactl)."""

_FRAME: Final = struct.Struct(">bI")

REASON_BYTES_MAX: Final = 80
"""How much of a bad key is quoted: enough to find it, too little to flood a log."""

# What fastavro and the conversion raise on bytes that are not a record (found by fuzzing, tests/unit/eventlog).
_UNREADABLE: Final = (
    EOFError,
    IndexError,
    OverflowError,
    ValueError,
    fastavro.schema.SchemaParseException,
    msgspec.ValidationError,
)


class CodecGarbage(Exception):  # noqa: N818 - a verdict on foreign bytes, not an internal error
    """Bytes that are not a fact of Headgate; ``reason`` explains why, in words for an operator."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Codec:
    """Encodes at the log's schema level, decodes with whichever schema wrote the value, and learns the level by it."""

    def __init__(self, known: SchemaSet, level: SchemaLevel | None = None) -> None:
        """``level`` is the process's, by default one that writes the newest at once."""
        self.level = level if level is not None else SchemaLevel(known.level, known.level)
        self._known = known
        self._by_id = known.by_id
        self._newest = known.newest

    def encode(self, fact: Fact) -> tuple[bytes, bytes | None]:
        """Key and value of ``fact`` as they go to the topic; the value is None for a tombstone.

        Raises ValueError if the record is not of the type that its key has, ValueError or TypeError if one of its
        fields is not, LevelTooLowError.
        """
        key = fact.key.text().encode()
        if fact.value is None:
            return key, None
        if type(fact.value) is not fact.key.record:
            raise ValueError(f"key {fact.key.text()} takes {fact.key.record.__name__}, not {type(fact.value).__name__}")
        return key, self._encode_body(self.schema_for(fact.value), fact.value)

    def schema_for(self, record: Record) -> SchemaVersion:
        """The schema that ``record`` is written with. Raises LevelTooLowError if it would lose something by it."""
        kind = type(record)
        # The record that raises the level is the first of it.
        level = max(self.level.writes, record.level) if isinstance(record, OwnerAnnounced) else self.level.writes
        schema = self._known.written[min(level, self._known.level)].get(kind)
        if schema is None or (schema is not self._newest[kind] and not self._keeps_all(schema, record)):
            raise LevelTooLowError(
                f"a {kind.__name__} that schema level {level} lacks waits for the upgrade of all that read the log"
            )
        return schema

    def _keeps_all(self, schema: SchemaVersion, record: Record) -> bool:
        """Whether ``record`` is the same after it was written in an older version."""
        try:
            return self._decode_body(schema, self._encode_body(schema, record)) == record
        except ValueError:
            # A word that the older version's enum does not have.
            return False

    def _encode_body(self, schema: SchemaVersion, record: Record) -> bytes:
        out = BytesIO()
        out.write(_FRAME.pack(MAGIC, schema.id))
        fields = msgspec.to_builtins(record, builtin_types=(bytes,), str_keys=True)
        # fastavro would write 1.5 as 1 where a field is a long.
        msgspec.convert(fields, type(record), str_keys=True)
        try:
            fastavro.schemaless_writer(out, schema.parsed, fields)
        except OverflowError as error:
            raise ValueError(f"a number of this {type(record).__name__} does not fit into 64 bits: {error}") from error
        return out.getvalue()

    def decode_key(self, topic: str, key: bytes | None) -> Key:
        """The key alone, whatever its value is. Raises CodecGarbage."""
        return _decode_key(topic, key)

    def decode(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[Key, Record | None]:
        """The fact in ``key`` and ``value``, read from control topic ``topic`` (name without prefix).

        Raises CodecGarbage or NewerSchemaError. The schema id is looked at first: a newer Headgate may have new
        forms of keys too, and those must not be taken for garbage.
        """
        schema = None if value is None else self._schema_of(value)
        parsed = _decode_key(topic, key)
        if schema is None or value is None:
            return parsed, None
        if schema.record is not parsed.record:
            raise CodecGarbage(
                f"key {parsed.text()!r} takes {parsed.record.__name__}, its value is a {schema.record.__name__}"
            )
        record = self._decode_body(schema, value)
        self.level.met(max(schema.version, record.level) if isinstance(record, OwnerAnnounced) else schema.version)
        return parsed, record

    def _schema_of(self, value: bytes) -> SchemaVersion:
        if len(value) < _FRAME.size:
            raise CodecGarbage(f"value of {len(value)} bytes is too short for a schema id")
        magic, schema_id = _FRAME.unpack_from(value)
        if magic != MAGIC:
            raise CodecGarbage(f"value starts with byte {value[0]:#04x} instead of 0x00: not in Confluent framing")
        schema = self._by_id.get(schema_id)
        if schema is not None:
            return schema
        if ID_FIRST <= schema_id <= ID_LAST:
            raise NewerSchemaError(
                f"schema id {schema_id} was written by a newer Headgate than this one: upgrade this process"
            )
        raise CodecGarbage(f"schema id {schema_id} is not one of Headgate's ({ID_FIRST} to {ID_LAST})")

    def _decode_body(self, schema: SchemaVersion, value: bytes) -> Record:
        body = BytesIO(value)
        body.seek(_FRAME.size)
        newest = self._newest[schema.record].parsed
        try:
            builtins = fastavro.schemaless_reader(body, schema.parsed, newest if newest is not schema.parsed else None)
            record: Record = msgspec.convert(builtins, schema.record, str_keys=True)
        except _UNREADABLE as error:
            raise CodecGarbage(
                f"value is not a {schema.record.__name__} v{schema.version}: {type(error).__name__}: {error}"
            ) from error
        if body.tell() != len(value):
            raise CodecGarbage(
                f"{len(value) - body.tell()} bytes too many after a {schema.record.__name__} v{schema.version}"
            )
        return record


def _decode_key(topic: str, key: bytes | None) -> Key:
    if key is None:
        raise CodecGarbage("no key")
    try:
        return parse_key(topic, key.decode())
    except UnicodeDecodeError as error:
        raise CodecGarbage(f"key {key[:REASON_BYTES_MAX]!r} is not UTF-8") from error
    except MalformedKeyError as error:
        raise CodecGarbage(str(error)[: 2 * REASON_BYTES_MAX]) from error
