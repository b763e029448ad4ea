"""PostgreSQL → PostgreSQL: the same types. A domain becomes the type that it is made of, which holds its values."""

from typing import Final

import msgspec

from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn
from headgate.databases.postgresql.types import PostgresType, parse_type
from headgate.records.identifiers import NotAnIdentifierError, parse_identifier
from headgate.sources.connector_warnings import LOST_TYPES, without_length
from headgate.tables.mapped import Default, LeftOut, Mapped, Outcome, Unmapped

__all__ = ["GENERATED", "altered", "lost_elements", "to_postgresql", "unknown", "unwritable", "unwritten"]

_BUILT_IN: Final = "pg_catalog"
_BY_SETTING: Final = frozenset({"money"})
"""Types whose texts depend on a setting of the session, so a default is left out."""

_CHANGED: Final = {
    ("bit varying", False): "the connector drops zeros at the front of a bit varying",
    ("time with time zone", False): "the connector writes a time with time zone in UTC, and 24:00:00 as 00:00:00",
    ("time without time zone", True): "the connector cuts times in arrays to milliseconds",
    ("time with time zone", True): "the connector cuts times in arrays to seconds, and writes them in UTC",
}
"""(type, whether an array of it) → what the connector does to its values. No type of the sink makes up for that."""

_WRITTEN_AS: Final = {"hstore": "jsonb"}
"""Type of an extension → the type of what the connector writes; it writes others as texts, or not at all."""

_OLD_DAYS: Final = "dates before the year 1, and from 1582-10-05 to 1582-10-14"
_SHAPES: Final = "arrays of several dimensions, or with bounds that do not begin at 1"

_ALTERED: Final = {
    ("date", False): f"{_OLD_DAYS}, of the connector's snapshot",
    ("date", True): f"{_OLD_DAYS}; {_SHAPES}",
    ("timestamp without time zone", True): f"timestamps before 1582-10-15; {_SHAPES}",
    ("timestamp with time zone", True): f"{_OLD_DAYS}; {_SHAPES}",
    ("numeric", True): f"arrays with NaN; {_SHAPES}",
}
"""(type, whether an array of it) → the few values of it that the connector changes."""


GENERATED: Final = "the source computes it, and the connector writes its values in the snapshot only"


def to_postgresql(column: PostgresColumn, enum: EnumType | None) -> Outcome:
    """The sink's column. ``enum``: the one that the column's values, or the elements of its arrays, are of."""
    computed = _computed(column) or unwritten(column)
    if computed is not None:
        return computed
    if enum is not None:
        lost = lost_elements(column)
        if lost is not None:
            return Unmapped(lost, "text[]")
        own = PostgresType(own=(enum.schema, enum.name))
        return Mapped(type=own, default=Default.ANY, needs=enum)
    found = parse_type(column.base)
    if found is None:
        return unknown(column)
    reason = unwritable(column, found)
    if reason is not None:
        return Unmapped(reason, found.sql)
    default = Default.NONE if found.name in _BY_SETTING else Default.ANY
    own = msgspec.structs.replace(found, collation=_collation(column))
    return Mapped(type=own, default=default, altered=altered(found))


def _computed(column: PostgresColumn) -> Mapped | None:
    """A column that the sink can compute as the source does."""
    found = PostgresType(name=_SEARCHED) if column.base == _SEARCHED else parse_type(column.base)
    if column.generated is None or column.needs is None or found is None:
        return None
    return Mapped(type=msgspec.structs.replace(found, collation=_collation(column)), generated=column.generated)


_SEARCHED: Final = "tsvector"
"""Not on the list, because the connector does not write its values as PostgreSQL reads them."""


def unwritten(column: PostgresColumn) -> LeftOut | None:
    """Whether the connector does not write the column's values."""
    if column.generated is not None:
        return LeftOut(GENERATED)
    if without_length(column.base) in LOST_TYPES:
        return LeftOut(f"the connector does not write values of type {column.base}")
    return None


def unwritable(column: PostgresColumn, found: PostgresType) -> str | None:
    """What the connector does to all values of that type, None if they arrive as they are. ``found``: its base."""
    if column.type.endswith("[]") and column.type != column.base:
        return "the connector writes NULL for an array of a domain"
    return _CHANGED.get((found.name, found.is_array))


def altered(found: PostgresType) -> str:
    """Which values of the type the connector changes, empty if it changes none."""
    return _ALTERED.get((found.name, found.is_array), _SHAPES if found.is_array else "")


def lost_elements(column: PostgresColumn) -> str | None:
    """Why an array of an enum does not arrive whole, None for a column that is not an array."""
    if not column.type.endswith("[]"):
        return None
    return "the connector's snapshot writes NULL for an array of an enum that has a NULL, or a label that needs quotes"


def unknown(column: PostgresColumn) -> Unmapped:
    """The refusal of a type that is not on the list: an extension's, a composite or a rare one."""
    return Unmapped(f"{column.type} is not a type that Headgate can create", _WRITTEN_AS.get(column.base, "text"))


def _collation(column: PostgresColumn) -> tuple[str, str] | None:
    """A collation of the server's own. Others may not exist at the sink, and any collation holds every text."""
    try:
        parts = parse_identifier(column.collation or "")
    except NotAnIdentifierError:
        return None
    return (parts[0], parts[1]) if len(parts) == 2 and parts[0] == _BUILT_IN else None
