"""Who wrote an event, by the name of its connector, where readers and sinks depend on it."""

from typing import Final

__all__ = ["MAXWELL", "is_of_debezium", "is_of_mysql"]

MAXWELL: Final = "maxwell"
"""Maxwell's decoder gives this name as the connector's: its texts are the database's, and its JSON columns are values,
no texts that hold JSON."""

_MYSQL: Final = frozenset({"mysql", "mariadb"})


def is_of_debezium(connector: str | None) -> bool:
    """Whether an event without a schema is Debezium's, whose texts depend on settings of the connector."""
    return connector not in (None, MAXWELL)


def is_of_mysql(connector: str | None) -> bool:
    """Whether events come from a MySQL or MariaDB: its ``time`` is in microseconds, some of its integers unsigned."""
    return connector in _MYSQL
