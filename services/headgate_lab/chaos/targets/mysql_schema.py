"""The shop's tables in a MariaDB: for each type of the source the one that holds all its values (docs/types.md).

Texts keep every letter and every space apart (``utf8mb4_nopad_bin``), as the source's do; where they are in a key they
have a length, which no value of the shop reaches.
"""

import re
from typing import Final

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from headgate.databases.mysql.sql import quoted
from headgate_lab.demo.schema import SCHEMA, TABLES, VERSION, ShopColumn, ShopTable

__all__ = ["create_tables"]

_COLLATION: Final = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
_SHORT: Final = f"varchar(255) {_COLLATION}"
_TYPES: Final = {
    "bigint": "bigint",
    "integer": "int",
    "boolean": "boolean",
    "double precision": "double",
    "numeric": "decimal(19,4)",  # the source's has no bounds; the shop writes fifteen digits, four behind the point
    "uuid": "char(36) CHARACTER SET ascii COLLATE ascii_bin",  # MariaDB's own refuses some versions and variants
    "date": "date",
    "timestamptz": "datetime(6)",
    "text": f"longtext {_COLLATION}",
    "jsonb": "json",
    "bytea": "longblob",
}
_DECLARED: Final = re.compile(r"(?P<type>.+?)(?P<digits>\(.+?\))?(?P<null> NOT NULL)?(?P<unique> UNIQUE)?")


def create_tables(target: "Connection[Cursor]") -> None:
    """Create the shop, empty. Raises KeyError for a type that is not known here."""
    with target.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {quoted(SCHEMA)} {_COLLATION}")
        for table in TABLES:
            columns = [f"{quoted(column.name)} {_type(table, column)}" for column in table.columns]
            columns.append(f"{quoted(VERSION)} bigint NOT NULL")
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, table.key))})")
            name = quoted(SCHEMA, table.name)
            cursor.execute(f"CREATE TABLE {name} ({', '.join(columns)}) ENGINE = InnoDB {_COLLATION}")


def _type(table: ShopTable, column: ShopColumn) -> str:
    declared = _DECLARED.fullmatch(column.sql_type)
    if declared is None:
        raise KeyError(column.sql_type)
    kind, digits = declared["type"], declared["digits"]
    if kind == "text" and (column.name in table.key or declared["unique"]):
        known = _SHORT
    else:
        known = f"decimal{digits}" if kind == "numeric" and digits else _TYPES[kind]
    # Without a word about it the server would make up a default for some types.
    return (
        known
        + (declared["null"] or (" NOT NULL" if column.name in table.key else " NULL"))
        + (declared["unique"] or "")
    )
