"""Opening the two ends that are compared."""

from typing import Final

from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kinds import KINDS, kind_of
from headgate.sinks.contract import SinkError
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink, target_of
from headgate.verify.contract import Side
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide

__all__ = ["open_side", "open_target", "why_uncomparable"]

_SIDES: Final[dict[str, type[MysqlSide] | type[PostgresSide]]] = {"mysql": MysqlSide, "postgresql": PostgresSide}


def open_side(target: Target) -> Side:
    """The database of that address, to be read. Raises DatabaseError."""
    return _SIDES[kind_of(target.dsn, target.options).name](target)


def open_target(spec: SinkSpec) -> Side:
    """A feed's sink, to be read. Raises DatabaseError."""
    if spec.type in KINDS:
        return open_side(target_of(spec))
    from headgate.verify.lake import LakeSide  # noqa: PLC0415 - needs libraries that only users of lakes install

    try:
        sink = open_sink(spec)
        if not isinstance(sink, LakeSink):
            raise DatabaseRefusedError(why_uncomparable(spec))
        return LakeSide(sink.lake(), spec.connection or spec.dsn or "")
    except SinkError as error:
        raise DatabaseRefusedError(str(error)) from error


def why_uncomparable(spec: SinkSpec) -> str:
    """Why the rows of a sink cannot be compared with the source's; empty if they can."""
    if spec.type in KINDS:
        return ""
    if spec.mode == "append":
        return (
            "it writes a row for every change (sink.mode: append), and the source has one for every key. Only tables "
            "with sink.mode: upsert can be compared"
        )
    return "" if spec.type in LAKES else f"it writes to a sink of type {spec.type}, whose rows cannot be compared"


LAKES: Final = frozenset({"delta", "iceberg"})
