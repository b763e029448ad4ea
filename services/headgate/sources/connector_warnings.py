"""Warnings about values that a connector has changed, as far as the feed's creation can detect them.

No sink can correct it, and nothing shows it afterwards but `headgate verify`. docs/types.md has the whole list.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headgate.formats.connectors import MAXWELL, is_of_mysql
from headgate.records.name_lists import shown_names
from headgate.sources.preview import Seen


class SinkTable(msgspec.Struct, frozen=True):
    """A table of the sink: column → type as the sink names it, and columns that may be NULL and have a default.

    For one that is still to be created: as the source names it.
    """

    topic: str
    table: str
    columns: Mapping[str, str]
    defaults: Sequence[str] = ()


LOST_TYPES: Final = frozenset({"interval[]", "bit[]", "bit varying[]", "money[]", "pg_lsn", "point[]", "tsquery"})
"""Types of PostgreSQL whose values Debezium writes as NULL, or not at all."""

FORGOTTEN_ARRAYS: Final = frozenset(
    {"smallint[]", "numeric[]", "boolean[]", "timestamp without time zone[]", "timestamp with time zone[]"}
    | {"double precision[]", "real[]", "time without time zone[]"}
)
"""Arrays of PostgreSQL that an UPDATE sets to NULL where it leaves a large one alone (dbz#2418)."""

_STRIPPED: Final = frozenset({"bit varying", "bit varying[]"})
"""Types of PostgreSQL whose values arrive as a number, without the zeros at its front."""

_SPAN: Final = "interval"

_CUT: Final = frozenset({"time without time zone[]", "time with time zone[]"})
"""Arrays of PostgreSQL whose elements lose digits: time to milliseconds, timetz to seconds; 24:00 becomes 00:00."""


_TEXTS: Final = {
    "hidden": (
        "NULL may arrive as the column's default ({}). Set key.converter.replace.null.with.default and "
        "value.converter.replace.null.with.default to false at the connector (JSON), or "
        "value.converter.ignore.default.for.nullables to true (Confluent's Avro converter; Apicurio's "
        "does not have this setting), and snapshot the tables again"
    ),
    "missing": (
        "the newest events do not have all columns of the sink's tables ({}), so these get the sink's default. "
        "Connectors leave out columns of composite types and of types that they do not know"
    ),
    "lost": "the connector does not write values of these columns ({}): leave them out of the sink's tables",
    "forgotten": (
        "an UPDATE that does not touch a large array sets it to NULL, because the connector does not receive it "
        "({}). Set "
        "REPLICA IDENTITY FULL on the source's tables, if such arrays can be larger than about 2 kB"
    ),
    "cut": "the connector cuts off digits of these arrays, and writes 24:00 as 00:00 ({})",
    "stripped": "the connector drops zeros at the front of bit strings without a fixed length ({})",
    "months": (
        "the connector writes months of intervals as 30.4375 days each ({}). Set its interval.handling.mode to string, "
        "and snapshot the tables again"
    ),
    "years": "the connector writes the year 0 as 1900 ({})",
}
"""What happens to which columns, and what to do."""


def connector_warnings(tables: Iterable[SinkTable], seen: Mapping[str, Seen]) -> tuple[str, ...]:
    """A sentence for each kind of change that the tables' columns, or their newest events, show."""
    found: dict[str, dict[str, Sequence[str]]] = {kind: {} for kind in _TEXTS}
    for each in tables:
        if each.topic in seen:
            for kind, named in _changed(each, seen[each.topic]).items():
                if named:
                    found[kind][each.table] = named
    return tuple(f"warning: {text.format(_named(found[kind]))}" for kind, text in _TEXTS.items() if found[kind])


def _changed(table: SinkTable, told: Seen) -> dict[str, list[str]]:
    """Kind of change → the columns that it happens to."""
    columns = table.columns
    kinds = {column: without_length(declared) for column, declared in columns.items()}
    there = None if told.columns is None else {column.lower() for column in told.columns}
    found = {
        "hidden": _hidden(table, told),
        "missing": [] if there is None else [column for column in columns if column.lower() not in there],
    }
    if told.connector == "postgresql":
        found["months"] = [column for column, type_ in kinds.items() if type_ == _SPAN and column in told.durations]
        for kind, types in (
            ("lost", LOST_TYPES),
            ("forgotten", FORGOTTEN_ARRAYS),
            ("cut", _CUT),
            ("stripped", _STRIPPED),
        ):
            found[kind] = [f"{column} ({type_})" for column, type_ in kinds.items() if type_ in types]
    elif is_of_mysql(told.connector):
        found["years"] = [column for column, type_ in kinds.items() if type_ == "year"]
    return found


def _hidden(table: SinkTable, told: Seen) -> list[str]:
    """Columns with defaults, unless one of them was NULL, which proves that the converter writes NULLs as they are.

    Events without a schema do not show which columns have defaults. The sink's table does, if it is like the source's.
    """
    if told.connector is None or told.connector == MAXWELL:  # Maxwell has no converter of Kafka Connect's
        return []
    columns = told.defaults
    if columns is None:
        columns = (told.columns or frozenset()) & set(table.defaults)
    return [] if columns & told.nulls else sorted(columns)


def without_length(declared: str) -> str:
    """A type without its length or precision: ``time(3) without time zone[]`` → ``time without time zone[]``."""
    head, bracket, rest = declared.partition("(")
    return head + rest.partition(")")[2] if bracket else declared


def _named(found: Mapping[str, Sequence[str]]) -> str:
    shown = [f"{table}: {shown_names(columns)}" for table, columns in sorted(found.items())]
    return shown_names(shown, "; ")
