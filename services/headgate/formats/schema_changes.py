"""Debezium's schema changes: the statements that altered a source's tables, and the columns that each left.

The connectors for MySQL and MariaDB write them to the topic that is called as their ``topic.prefix``, unless
``include.schema.changes`` is false. A record of a connector's snapshot has the table as the connector found it.
"""

import re
from typing import Final

import msgspec

from headgate.formats.avro_code import Reader, compile_reader
from headgate.formats.avro_schema import Record, optional_part, parse_avro
from headgate.formats.change import DATA_ERRORS, ChangeError, reason_of
from headgate.formats.debezium_avro import FRAME_BYTES, SchemaById, schema_id_of
from headgate.records.identifiers import parse_identifier

__all__ = ["SchemaChangeDecoder", "TableChange", "keeps_columns"]

_PATHS: Final = (("ddl",), ("tableChanges",))
_SOURCE: Final = ("source",)

_DATABASE_AND_TABLE: Final = 2

_KEEPS_COLUMNS: Final = re.compile(
    r"(?:\s|/\*(?!M?!).*?\*/|(?:--|#)[^\n]*(?:\n|$))*(?:(?:CREATE|DROP|RENAME|TRUNCATE)\b|$)", re.IGNORECASE | re.DOTALL
)
"""How a statement begins that gives no column another name; clients write comments in front of it.

A connector's snapshot creates tables that it found, or has no statement. All others are read: also ``SET STATEMENT …
FOR ALTER TABLE``, and comments that the server executes.
"""


class TableChange(msgspec.Struct, frozen=True):
    """What a statement did to a table. ``columns``: those that the table had afterwards, in their order.

    ``statement`` is the whole text, which may name the table in another way than ``database`` and ``table``. ``place``:
    of the statement in the source's binary log, as far as the record has it. A connector that did not stop in order
    writes its last statements once more.
    """

    database: str
    table: str
    columns: tuple[str, ...]
    statement: str
    place: tuple[int | str | None, ...] = ()


class _Column(msgspec.Struct):
    name: str


class _Table(msgspec.Struct):
    columns: list[_Column]


class _Changed(msgspec.Struct):
    id: str
    table: _Table | None = None


class _Source(msgspec.Struct):
    server: int | None = msgspec.field(name="server_id", default=None)
    file: str | None = None
    position: int | None = msgspec.field(name="pos", default=None)


class _Event(msgspec.Struct):
    ddl: str | None
    tables: list[_Changed] = msgspec.field(name="tableChanges")
    source: _Source | None = None


class _Wrapped(msgspec.Struct):
    payload: _Event


def keeps_columns(statement: str) -> bool:
    """Whether the statement leaves every name to the column that had it."""
    return _KEEPS_COLUMNS.match(statement) is not None


class SchemaChangeDecoder:
    """Decodes records of a topic of schema changes; remembers their schemas. One per thread."""

    def __init__(self, schemas: SchemaById | None) -> None:
        """``schemas``: None for JSON, with or without schemas."""
        self._schemas = schemas
        self._readers: dict[int, Reader] = {}

    def decode(self, value: bytes | None) -> list[TableChange]:
        """What the record's statement did to tables that exist after it; nothing for a record of another kind.

        Raises ChangeError for a record that is not a schema change, SchemasUnavailableError.
        """
        if not value:
            return []
        try:
            event = _in_json(value) if self._schemas is None else self._in_avro(value, self._schemas)
            return [found for each in event.tables if (found := _change(each, event)) is not None]
        except DATA_ERRORS as error:
            raise ChangeError(f"it is not a schema change of Debezium: {reason_of(error)}") from error

    def _in_avro(self, value: bytes, schemas: SchemaById) -> _Event:
        number = schema_id_of(value, "value")
        read = self._readers.get(number)
        if read is None:
            schema = optional_part(parse_avro(schemas(number)))
            if not isinstance(schema, Record) or any(path not in schema.fields for (path,) in _PATHS):
                raise ChangeError("its schema does not have the fields ddl and tableChanges")
            paths = (*_PATHS, *((_SOURCE,) if _SOURCE[0] in schema.fields else ()))
            read = self._readers[number] = compile_reader(schema, paths)
        ddl, tables, *source = read(value, FRAME_BYTES)
        found = {"ddl": ddl, "tableChanges": tables or [], "source": source[0] if source else None}
        return msgspec.convert(found, type=_Event)


def _in_json(value: bytes) -> _Event:
    try:
        return msgspec.json.decode(value, type=_Wrapped).payload
    except msgspec.ValidationError:
        return msgspec.json.decode(value, type=_Event)


def _change(changed: _Changed, event: _Event) -> TableChange | None:
    """None for a table that was dropped."""
    if changed.table is None:
        return None
    names = parse_identifier(changed.id)
    if len(names) != _DATABASE_AND_TABLE:
        raise ChangeError(f"{changed.id} is not the name of a database and a table")
    columns, source = tuple(column.name for column in changed.table.columns), event.source
    place = () if source is None or source.file is None else (source.server, source.file, source.position)
    return TableChange(names[0], names[1], columns, event.ddl or "", place)
