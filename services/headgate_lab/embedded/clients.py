"""Sessions of clients at the lab's databases: the shop, its load, audits and benchmarks. The lab opens no others."""

from typing import Any

import psycopg
import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from headgate.databases.mysql.address import parse_address


def postgres_client(dsn: str, *, autocommit: bool = True, name: str | None = None) -> psycopg.Connection[Any]:
    """A client at a PostgreSQL, with that application name. Raises psycopg.Error."""
    return psycopg.connect(dsn, autocommit=autocommit, application_name=name)


def mariadb_client(
    url: str, *, autocommit: bool = True, in_database: bool = True, loads_files: bool = False
) -> "Connection[Cursor]":
    """A client at a MariaDB, in the database of the address or in none. Raises pymysql.Error."""
    to = parse_address(url)
    return pymysql.connect(
        host=to.host,
        port=to.port,
        user=to.user,
        password=to.password or "",
        database=to.database if in_database else None,
        charset="utf8mb4",
        autocommit=autocommit,
        local_infile=loads_files,
    )
