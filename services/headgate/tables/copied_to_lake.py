"""Which types of a source are copied into which types of a lake: those whose texts give what the log gives.

An event has its own text of an interval, an array or a time with a zone, and the type of an enum or a domain has a name
of its own, so none of these is here.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from headgate.config.feed import FeedSpec
from headgate.databases.kinds import KINDS
from headgate.databases.row_source import RowSourceError
from headgate.databases.row_sources import connector_of
from headgate.records.control import Positions
from headgate.sources.database import source_target
from headgate.tables.paired_tables import is_taken

__all__ = ["check_appended", "is_taken_by_lake", "takes_of"]

_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_DECIMALS: Final = frozenset({"decimal", "string"})
_STRING: Final = frozenset({"string"})

_POSTGRESQL: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), _INTEGERS),
    "numeric": _DECIMALS,
    "money": frozenset({"decimal"}),
    "float4": frozenset({"float"}),
    "float8": frozenset({"double"}),
    "bool": frozenset({"boolean"}),
    "bit": frozenset({"boolean", "string"}),
    "bytea": frozenset({"binary"}),
    "date": frozenset({"date"}),
    "timestamp": frozenset({"timestamp_ntz"}),
    "timestamptz": frozenset({"timestamp"}),
    **dict.fromkeys(("text", "varchar", "bpchar", "json", "jsonb", "uuid", "time"), _STRING),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8"), _STRING),
    **dict.fromkeys(("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"), _STRING),
}

_MYSQL: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "year"), _INTEGERS),
    "bigint": _INTEGERS | {"decimal"},
    "decimal": _DECIMALS,
    "float": frozenset({"float"}),
    "double": frozenset({"double"}),
    "bit": frozenset({"boolean"}),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), frozenset({"binary"})),
    "date": frozenset({"date"}),
    "datetime": frozenset({"timestamp_ntz"}),
    "timestamp": frozenset({"timestamp"}),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _STRING),
    **dict.fromkeys(("json", "uuid", "time", "enum", "set"), _STRING),
}

_BY_CONNECTOR: Final = {"postgresql": _POSTGRESQL, "mysql": _MYSQL}


def is_taken_by_lake(connector: str, kind: str, other: str) -> bool:
    """Whether rows are copied from a column of type ``kind`` into one of the lake's type ``other``."""
    return other in _BY_CONNECTOR[connector].get(kind, ())


def takes_of(spec: FeedSpec) -> Callable[[str, str], bool]:
    """Which types the feed's sink takes from its source, as (the source's, the sink's)."""
    database = spec.source.database
    if spec.sink.type in KINDS or database is None:
        return is_taken
    return partial(is_taken_by_lake, connector_of(source_target(database)))


def check_appended(spec: FeedSpec, start: Positions) -> None:
    """Raise RowSourceError where copied rows cannot be among the changes of a table with ``mode: append``."""
    if spec.sink.mode == "append" and len(start) > 1:
        raise RowSourceError(
            f"the topic has {len(start)} partitions, and with sink.mode: append a copied row needs its place among the "
            "changes of one. Set sink.mode: upsert, or let the connector write a snapshot (snapshot: never)"
        )
