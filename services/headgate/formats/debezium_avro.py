"""Debezium Avro → Change: events in Confluent's framing, their schemas in a registry.

Keys and values begin with a zero byte and the four bytes of a schema id; what follows is one record of that schema,
and nothing else. Everything that follows from the schema (what to read, what columns mean) is worked out once per id:
ids are never given twice, so a worker remembers them for its life. The changes are those of debezium_json, but for
values that Avro has and JSON has not: bytes and unscaled decimals are bytes, instead of base64. A tombstone is a delete
of its row here, too; its key means what the key's schema defines.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress, repeat
from typing import Any, Final

import msgspec

from headgate.formats.avro_code import READ_ERRORS, Reader, compile_reader, text_in
from headgate.formats.avro_schema import Array, AvroType, Map, Record, Union, meaning_of, optional_part, parse_avro
from headgate.formats.change import Change, ChangeError, Operation, Row, source_time, source_times
from headgate.formats.dealing import Whose, named
from headgate.formats.debezium import (
    COMPACTED_AWAY,
    MESSAGE,
    ROW_OPERATIONS,
    TABLE_ADVICE,
    UNAVAILABLE_VALUE,
    Tombstones,
    Unavailable,
    check_key,
    connector_named,
    keyless_row,
    operation_of,
    told_of_modes,
)
from headgate.formats.decoding import Watermark, decode_columns
from headgate.formats.meaning import check_columns
from headgate.formats.registry import DecoderNeeds, FormatPlug
from headgate.formats.tables import UNNAMED, OneTable
from headgate.records.source_tables import SourceTable

__all__ = [
    "FORMAT",
    "FRAME_BYTES",
    "DebeziumAvroDecoder",
    "DebeziumAvroLook",
    "Fields",
    "SchemaById",
    "envelope_meanings",
    "schema_id_of",
]

FRAME_BYTES: Final = 5
"""A zero byte and a schema id of four bytes, the highest first."""

SCHEMAS_MAX: Final = 256
"""Schemas kept per decoder (there is one per topic), compiled, about 50 kB each. The oldest is forgotten first."""

SCHEMA_CHARACTERS_MAX: Final = 4 * 1024 * 1024
"""Of the JSON of all schemas that a decoder keeps, compiled: each character of it takes about ten bytes."""

SchemaById = Callable[[int], str]
"""A registry: id → the schema's JSON. Raises ChangeError for an id it does not know, SchemasUnavailableError."""

_UPSERT: Final = Operation.UPSERT
_DELETE: Final = Operation.DELETE
_OP: Final = ("op",)
_AFTER: Final = ("after",)
_SOURCE_MS: Final = ("source", "ts_ms")
_TABLE: Final = (("source", "db"), ("source", "schema"), ("source", "table"))


class _Plan(msgspec.Struct, frozen=True):
    """How events of one schema are read; ``schema`` is an envelope's or a key's.

    Of a value: op, row, source time, the three parts of its table's name. Of a key: its row.
    ``collections``: columns whose values are lists or objects.
    """

    schema_id: int
    schema: Record
    read: Reader
    semantics: dict[str, str]
    collections: bool


def schema_id_of(data: bytes, what: str) -> int:
    """The schema's id in the frame. Raises ChangeError if the frame is missing."""
    if len(data) < FRAME_BYTES or data[0] != 0:
        raise ChangeError(
            f"the {what} is not Avro in Confluent's framing: it begins with {data[:FRAME_BYTES]!r}, instead of a zero "
            "byte and the four bytes of a schema id (is the connector's converter Avro, for keys and values?)"
        )
    return int.from_bytes(data[1:FRAME_BYTES], "big")


class DebeziumAvroLook:
    """See dealing.Look. Remembers schemas."""

    def __init__(self, schemas: SchemaById) -> None:
        self._values = _Plans(schemas, "value", functools.partial(_fields_plan, (_OP, *_TABLE)))

    def __call__(self, value: bytes) -> SourceTable | Whose:
        """The table that ``source`` names."""
        _, (op, *table) = self._values.read(value)
        return Whose.NOBODY if op == MESSAGE else named(*table)


class Fields:
    """Reads some fields of events and nothing else; remembers schemas. One per thread."""

    def __init__(self, schemas: SchemaById, paths: Sequence[tuple[str, ...]]) -> None:
        """``paths``: of the envelope, as ("op",) or ("source", "lsn")."""
        self._values = _Plans(schemas, "value", functools.partial(_fields_plan, paths))

    def __call__(self, value: bytes) -> tuple[Any, ...]:
        """One for each path, None where the schema has none. Raises ChangeError, SchemasUnavailableError."""
        return self._values.read(value)[1]


class DebeziumAvroDecoder:
    """Decodes the events of a topic; remembers their schemas. One per thread."""

    def __init__(
        self,
        schemas: SchemaById,
        unavailable_value: str = UNAVAILABLE_VALUE,
        *,
        keyless: bool = False,
        binary: str | None = None,
    ) -> None:
        """``keyless``: events without key are rows to be added; what is more than that is refused.

        ``binary``: the connector's ``binary.handling.mode``, if the feed defines it.
        """
        self._keyless = keyless
        self._values = _Plans(schemas, "value", _value_plan, told_of_modes(binary))
        self._keys = _Plans(schemas, "key", _key_plan, told_of_modes(binary))
        self._unavailable = Unavailable(unavailable_value)
        self.table = OneTable(TABLE_ADVICE)
        self._tombstones = Tombstones(self._tombstone)
        self._only: dict[tuple[int, SourceTable], Reader] = {}

    def decode(
        self, key: bytes | None, value: bytes | None, partition: int, offset: int, append_ms: int
    ) -> Change | None:
        """The change an event stands for, None if it changes nothing (a message).

        Raises ChangeError, SchemasUnavailableError.
        """
        if value is None:
            return self._tombstones.decode(key, partition, offset, append_ms)
        plan, (op, after, source_ms, *table) = self._values.read(value)
        operation = operation_of(op)
        if operation is None:
            return None
        if (named := tuple(table)) != UNNAMED:
            self.table.check(named)
        if operation is _UPSERT:
            if after is None:
                raise ChangeError(f"op={op!r} without a row: 'after' is missing or null")
            self._mark_absent([after], plan)
        row = after if operation is _UPSERT else None
        if operation is Operation.TRUNCATE:
            key_row: Row = {}
        elif key is None:
            key_row = keyless_row(op, appended=self._keyless)
        else:
            (key_row,) = self._keys.read(key)[1]
            check_key(key_row)
        if operation is _DELETE:
            self._tombstones.met_delete(key, partition, offset)
        return Change(partition, offset, operation, key_row, row, source_time(source_ms), append_ms, plan.semantics)

    def decode_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """See decoding.Decoder."""
        return decode_columns(self._decode_at_once, self.decode, keys, values, partitions, offsets, appended_ms)

    def take_watermarks(self) -> list[Watermark]:
        """Always empty: an event shows when it happened, not that no earlier one follows."""
        return []

    def _decode_at_once(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change] | None:
        """The same column by column; None where any event needs a closer look, or is wrong.

        For rows of one table and schema, deletes and tombstones: what a batch is made of, as a rule.
        """
        everything = (keys, partitions, offsets, appended_ms)
        nulls: list[int] = []
        if None in values:
            there = [value is not None for value in values]
            nulls = [place for place, is_there in enumerate(there) if not is_there]
            columns = (compress(column, there) for column in (keys, values, partitions, offsets, appended_ms))
            keys, values, partitions, offsets, appended_ms = map(list, columns)  # type: ignore[assignment]
        plan, key_plan = self._values.common(values), self._keys.common(keys)
        if plan is None or key_plan is None:
            return None
        read, read_key = self._reader_of_one(plan), key_plan.read
        try:
            events: list[tuple[Any, ...]] = [read(value, FRAME_BYTES) for value in values]  # type: ignore[arg-type]
            key_rows = [read_key(key, FRAME_BYTES)[0] for key in keys]  # type: ignore[arg-type]
            operations = [ROW_OPERATIONS[op] for op, _, _ in events]
        except (*READ_ERRORS, KeyError):
            return None
        rows = [row for _, row, _ in events]
        if _DELETE in operations:
            rows = [None if op is _DELETE else row for op, row in zip(operations, rows, strict=True)]
            present = [row for row, op in zip(rows, operations, strict=True) if op is not _DELETE]
        else:
            present = rows
        if None in present or None in chain.from_iterable(map(dict.values, key_rows)):
            return None
        self._mark_absent(present, plan)
        source_ms = source_times([ms for _, _, ms in events])
        meaning = repeat(plan.semantics)
        changes = list(map(Change, partitions, offsets, operations, key_rows, rows, source_ms, appended_ms, meaning))
        merged = self._tombstones.among(changes, nulls, *everything) if nulls else changes
        if changes and operations[-1] is _DELETE:  # its tombstone may begin the next batch
            self._tombstones.met_delete(keys[-1], partitions[-1], offsets[-1])
        return merged

    def _tombstone(self, key: bytes, partition: int, offset: int, append_ms: int) -> Change:
        plan, (row,) = self._keys.read(key)
        check_key(row)
        return Change(partition, offset, _DELETE, row, None, None, append_ms, plan.semantics)

    def _reader_of_one(self, plan: _Plan) -> Reader:
        """Reads events of the topic's table only: its name is compared in place, and never built."""
        table = self.table.name or UNNAMED
        read = self._only.get((plan.schema_id, table))
        if read is None:
            if len(self._only) >= SCHEMAS_MAX:
                del self._only[next(iter(self._only))]
            read = self._only[plan.schema_id, table] = _reader_of_one(plan.schema, table)
        return read

    def _mark_absent(self, rows: Sequence[Row], plan: _Plan) -> None:
        mark, scalars = self._unavailable.mark, self._unavailable.scalars
        for row in rows:
            if plan.collections or not scalars.isdisjoint(row.values()):
                mark(row)


_UNKNOWN: Final = (None, 0)


class _Plans:
    """Schemas met so far, by the frame that names them; one that cannot be used is remembered with its reason."""

    def __init__(
        self,
        schemas: SchemaById,
        what: str,
        make: Callable[[int, AvroType], _Plan],
        told: Mapping[str, str] | None = None,
    ) -> None:
        """``told``: what is known beside the schemas, and becomes part of each one's semantics."""
        self._told = told or {}
        self._schemas = schemas
        self._what = what
        self._make = make
        self._known: dict[bytes, tuple[_Plan | ChangeError, int]] = {}
        self._known_characters = 0

    def read(self, data: bytes) -> tuple[_Plan, tuple[Any, ...]]:
        """One record. Raises ChangeError, SchemasUnavailableError."""
        plan = self._plan(data)
        try:
            return plan, plan.read(data, FRAME_BYTES)
        except READ_ERRORS as error:
            reason = "it ends before its schema does" if isinstance(error, IndexError) else str(error)
            raise ChangeError(f"the {self._what} is not of its schema {plan.schema_id}: {reason}") from error

    def common(self, datas: Sequence[bytes | None]) -> _Plan | None:
        """The plan of records that all are of one schema that has been met; None if not."""
        if not datas or None in datas:
            return None
        frames = {data[:FRAME_BYTES] for data in datas}  # type: ignore[index]  # looked at above
        known, _ = self._known.get(frames.pop(), _UNKNOWN) if len(frames) == 1 else _UNKNOWN
        return known if isinstance(known, _Plan) else None

    def _plan(self, data: bytes) -> _Plan:
        frame = data[:FRAME_BYTES]
        known, _ = self._known.get(frame, _UNKNOWN)
        if known is None:
            schema_id = schema_id_of(data, self._what)
            text = self._schemas(schema_id)
            try:
                known = self._make(schema_id, parse_avro(text))
                known.semantics.update(self._told)
            except ChangeError as error:
                known = ChangeError(f"the {self._what}'s schema {schema_id}: {error}")
            self._keep(frame, known, len(text))
        if isinstance(known, ChangeError):
            raise ChangeError(str(known)) from known
        return known

    def _keep(self, frame: bytes, plan: _Plan | ChangeError, characters: int) -> None:
        self._known_characters += characters
        while self._known and (len(self._known) >= SCHEMAS_MAX or self._known_characters > SCHEMA_CHARACTERS_MAX):
            _, freed = self._known.pop(next(iter(self._known)))
            self._known_characters -= freed
        self._known[frame] = (plan, characters)


def _value_plan(schema_id: int, schema: AvroType) -> _Plan:
    schema = _envelope_of(schema)
    semantics, columns = envelope_meanings(schema), _columns_of(schema)
    read = _read_those(schema, (_OP, _AFTER, _SOURCE_MS, *_TABLE))
    return _Plan(schema_id, schema, read, semantics, _have_collections(columns))


def envelope_meanings(schema: AvroType) -> dict[str, str]:
    """Column → meaning (see Change.semantics), from an envelope's schema. Raises ChangeError."""
    envelope = _envelope_of(schema)
    source, columns = _source_of(envelope), _columns_of(envelope)
    check_columns(columns)
    semantics = {column: meaning_of(node) for column, node in columns.items()}
    return semantics | connector_named(None if source is None else source.connect)


def _columns_of(envelope: Record) -> dict[str, AvroType]:
    row = optional_part(envelope.fields["after"]) if "after" in envelope.fields else None
    if row is not None and not isinstance(row, Record):
        raise ChangeError("it is not a Debezium envelope: its field 'after' is not a record of columns")
    return {} if row is None else row.fields


def _fields_plan(paths: Sequence[tuple[str, ...]], schema_id: int, schema: AvroType) -> _Plan:
    schema = _envelope_of(schema)
    return _Plan(schema_id, schema, _read_those(schema, paths), {}, collections=False)


def _envelope_of(schema: AvroType) -> Record:
    schema = optional_part(schema)
    if not isinstance(schema, Record) or "op" not in schema.fields:
        raise ChangeError(
            "it is not a Debezium envelope: it has no field 'op' (unwrapping transforms are not supported)"
        )
    return schema


def _source_of(envelope: Record) -> Record | None:
    source = optional_part(envelope.fields["source"]) if "source" in envelope.fields else None
    return source if isinstance(source, Record) else None


def _reader_of_one(envelope: Record, table: SourceTable) -> Reader:
    """Reads op, row and source time of events of ``table``; one of READ_ERRORS for any other's."""
    source = _source_of(envelope)
    if source is not None:
        names = {part: name for (_, part), name in zip(_TABLE, table, strict=True)}
        there = {part: name for part, name in names.items() if part in source.fields or name is not None}
        try:
            exactly = {part: text_in(source.fields[part], name) for part, name in there.items()}
        except KeyError:
            return _none_such
        narrowed = msgspec.structs.replace(source, fields=source.fields | exactly)
        node = _with_record(envelope.fields["source"], narrowed)
        envelope = msgspec.structs.replace(envelope, fields=envelope.fields | {"source": node})
    return _read_those(envelope, (_OP, _AFTER, _SOURCE_MS))


def _with_record(node: AvroType, record: Record) -> AvroType:
    """The type ``node``, which is a record or may be one, with another in its place."""
    if not isinstance(node, Union):
        return record
    branches = tuple(record if isinstance(branch, Record) else branch for branch in node.branches)
    return msgspec.structs.replace(node, branches=branches)


def _none_such(_data: bytes, _at: int) -> tuple[Any, ...]:
    raise ValueError("no event of this schema can be of that table")


def _read_those(envelope: Record, paths: Sequence[tuple[str, ...]]) -> Reader:
    """Reads all of ``paths``; None for those that the schema does not have."""
    source = _source_of(envelope)
    known = {(name,) for name in envelope.fields} | {("source", name) for name in (source.fields if source else ())}
    there = [path for path in paths if path in known]
    read = _read(envelope, there)
    return read if len(there) == len(paths) else _in_full(read, there, paths)


def _in_full(read: Reader, there: Sequence[tuple[str, ...]], paths: Sequence[tuple[str, ...]]) -> Reader:
    places = [there.index(path) if path in there else None for path in paths]

    def read_all(data: bytes, at: int) -> tuple[Any, ...]:
        found = read(data, at)
        return tuple(None if place is None else found[place] for place in places)

    return read_all


def _key_plan(schema_id: int, schema: AvroType) -> _Plan:
    if not isinstance(schema, Record):
        raise ChangeError("it is not a record of key columns")
    check_columns(schema.fields)
    semantics = {column: meaning_of(node) for column, node in schema.fields.items()}
    return _Plan(schema_id, schema, _read(schema, [()]), semantics, _have_collections(schema.fields))


def _read(schema: Record, wanted: Sequence[tuple[str, ...]]) -> Reader:
    try:
        return compile_reader(schema, wanted)
    except KeyError as error:
        raise ChangeError(f"it is not a Debezium envelope: {error}") from error


def _have_collections(columns: dict[str, AvroType]) -> bool:
    return any(isinstance(optional_part(node), Array | Map | Record) for node in columns.values())


def _schemas_of(needs: DecoderNeeds) -> SchemaById:
    assert needs.schemas is not None  # noqa: S101 - a feed of a format that needs a registry is refused without one
    return needs.schemas


FORMAT: Final = FormatPlug(
    summary="Debezium's events as Avro, schemas in a registry",
    compacted_away=COMPACTED_AWAY,
    options=frozenset({"binary_handling_mode"}),
    needs_registry=True,
    tells_types=True,
    has_envelopes=True,
    decoder=lambda needs: DebeziumAvroDecoder(
        _schemas_of(needs),
        needs.source.unavailable_value,
        keyless=needs.keyless,
        binary=needs.source.binary_handling_mode,
    ),
    look=lambda needs: DebeziumAvroLook(_schemas_of(needs)),
)
