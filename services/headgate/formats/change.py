"""One change of one row, in any format.

Every decoder produces ``Change``, and everything behind it (reducing, sinks) knows only this file. Values are plain
Python: str, int, bool, None, list, dict; Decimal for a JSON number with a point or an exponent (see json_values); bytes
and float where a format has types for them (Avro). What a value means follows from ``semantics`` (Debezium's schema
names) or, where the event has no schema, from the sink's column type.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, cast

import msgspec

from headgate.records.ts import MS_MAX


class Absent(msgspec.Struct, frozen=True):
    """A column the source did not send because it has not changed (a large value left alone)."""

    def __reduce__(self) -> str:
        return "ABSENT"  # one object in every process, so that ``is`` holds after pickling too


ABSENT: Final = Absent()

CONNECTOR: Final = ""
"""In ``Change.semantics``, where columns have names: the connector that wrote the event ("postgresql", "mysql", …).
Some types cannot be interpreted from the schema, or without one, unless the connector is known."""

BINARY: Final = "\x00binary"
"""In ``Change.semantics``, beside columns (no database lets one have this name): how bytes are written as text, in the
words of Debezium's ``binary.handling.mode``, if the feed defines it; or TEXT_ONLY."""

DECIMALS: Final = "\x00decimals"
"""In ``Change.semantics``, beside columns: the connector's ``decimal.handling.mode``, if the feed defines it. Without
it, digits in an event without a schema may be a number's text, or its bytes in base64."""

LACKING: Final = "\x00lacking"
"""In ``Change.semantics``, beside columns: what a column means that the table has and a whole row lacks. Without it,
the source does not have that column, and the sink's default holds. LACKING_NULL or LACKING_UNKNOWN."""

LACKING_NULL: Final = "null"
"""It is NULL: the writer leaves NULLs out."""

LACKING_UNKNOWN: Final = "unknown"
"""It is NULL, or the source does not have it: the writer may leave NULLs out, and no event shows whether it does."""

COMPUTED: Final = "\x00computed"
"""In ``Change.semantics``, beside columns: the types of computed columns, which no event describes, as a JSON object:
column → config.expressions.Kind. Their values are as formats/expressions/computed.py writes them. Only where the event
has a schema."""

BESIDE: Final = frozenset({CONNECTOR, BINARY, DECIMALS, LACKING, COMPUTED})
"""Entries of ``Change.semantics`` that are not of a column."""


def columns_described(told: Mapping[str, str]) -> dict[str, str]:
    """Column → what it means, of semantics."""
    return {name: meaning for name, meaning in told.items() if name not in BESIDE}


def is_described(told: Mapping[str, str]) -> bool:
    """Whether semantics have columns: those of events with a schema do."""
    return not told.keys() <= BESIDE


TEXT_ONLY: Final = "text"
"""Of a format that has bytes as bytes: a text is never some."""

Row = dict[str, object]


class Operation(StrEnum):
    """``upsert`` covers create, update and snapshot read; the sink must end with this row."""

    UPSERT = "upsert"
    DELETE = "delete"
    TRUNCATE = "truncate"


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change: its place in the log, its key and, for an upsert, its row (values or ABSENT).

    ``source_ms`` is the source's commit time, ``append_ms`` the broker's append time, both in ms since 1970. The first
    is for people, and None if the event has none that a clock can show (``source_time``).
    ``semantics`` is the meaning of values where the event had a schema (None where it had none): column → the schema's
    name, or its Connect type where it has no name ("int32", "bytes"). A parameter a value cannot be read without
    follows in brackets: ``org.apache.kafka.connect.data.Decimal(2)`` (scale), ``io.debezium.data.Bits(8)``,
    ``array(int32)``. That of a decimal may be followed by the precision, ``…Decimal(2,12)``. An event without schema
    has no columns there, at most its CONNECTOR. Never part of a reference cycle, so the garbage collector need not look
    at it (``gc=False``).
    """

    partition: int
    offset: int
    operation: Operation
    key: Row
    row: Row | None
    source_ms: int | None
    append_ms: int
    semantics: dict[str, str] | None = None


class ChangeError(ValueError):
    """An event that cannot be decoded: names what is wrong; the caller adds topic, partition and offset."""


ReportedTime = int | float | str | None
"""A time as an event may report it: only ``source_time`` shows whether it can be one."""

_TIMES: Final = {int, type(None)}


def source_time(ms: object) -> int | None:
    """The time of an event as it reports it, if plausible; microseconds in place of milliseconds are not.

    A number that is only for people must not stop a table. Clamped, it would leave the newest time seen in the year
    3084 permanently.
    """
    return ms if isinstance(ms, int) and 0 <= ms <= MS_MAX else None


def source_times(column: Sequence[ReportedTime]) -> Sequence[int | None]:
    """The same for a batch: ``column`` itself if all of it can be, which is found out without a look at each."""
    if set(map(type, column)) <= _TIMES:
        times = cast("Sequence[int | None]", column)
        known = [ms for ms in times if ms is not None]
        if not known or (min(known) >= 0 and max(known) <= MS_MAX):
            return times
    return list(map(source_time, column))


DATA_ERRORS: Final = (
    msgspec.MsgspecError,
    ValueError,  # ChangeError among them; texts that are not UTF-8, numbers of more than 4 300 digits
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,  # values nested deeper than Python's stack
    MemoryError,
    SyntaxError,  # of the reader that is made for an Avro schema
)
"""What an event can make code raise that reads it."""


def reason_of(error: Exception) -> str:
    """What is wrong with an event, by one of DATA_ERRORS, without a value of it: of a ChangeError its own words.

    msgspec names types and paths only. Python's own errors may quote what they were given ("invalid literal …").
    """
    if isinstance(error, ChangeError):
        return str(error)
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    return f"{type(error).__name__}: {error}" if isinstance(error, msgspec.MsgspecError) else type(error).__name__
