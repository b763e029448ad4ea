"""Opening the two databases that are compared."""

from typing import Final

from headgate.databases.address import Target
from headgate.databases.kinds import kind_of
from headgate.verify.contract import Side
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide

_SIDES: Final[dict[str, type[MysqlSide] | type[PostgresSide]]] = {"mysql": MysqlSide, "postgresql": PostgresSide}


def open_side(target: Target) -> Side:
    """The database of that address, to be read. Raises DatabaseError."""
    return _SIDES[kind_of(target.dsn, target.options).name](target)
