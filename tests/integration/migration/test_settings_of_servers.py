"""Values are copied whole, whatever a server's, a database's or a user's own settings do to texts and to SELECT."""

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from fixtures.installed_postgres import installed_server
from fixtures.services import mariadb_execute
from headgate.databases.mysql.session import MysqlSession, open_session
from integration.migration.played import played

pytestmark = pytest.mark.integration

SETTINGS = (
    "extra_float_digits = -15",
    "bytea_output = 'escape'",
    "DateStyle = 'SQL, DMY'",
    "IntervalStyle = 'sql_standard'",
    "TimeZone = 'America/New_York'",
    "xmloption = 'document'",
)
ROWS = """
INSERT INTO items SELECT n, 0.1 + n / 3.0, 0.1 + n / 3.0, ARRAY[1 / 3.0, n / 7.0], point(n / 3.0, 2), '\\x00ff5c27',
'-1 mon 2 days 03:04:05.678', '2024-02-03', '2024-02-03 04:05:06.789+03', 'a <b/>' FROM generate_series(1, 5) n
"""
BINARY = (
    "SELECT id, float4send(r), float8send(d), array_send(ar), point_send(p), b, interval_send(iv), date_send(dt), "
    "timestamptz_send(tz), x::text FROM items ORDER BY id"
)


def test_postgresql(tmp_path: Path) -> None:
    with installed_server("libxml", logical=True) as installed:
        check_postgresql(installed.dsn(), tmp_path)


def check_postgresql(url: str, tmp_path: Path) -> None:
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(
            "CREATE TABLE items (id int PRIMARY KEY, r real, d float8, ar float8[], p point, b bytea, iv interval, "
            "dt date, tz timestamptz, x xml)"
        )
        server.execute("SET xmloption = 'content'")
        server.execute(ROWS)
        server.execute("CREATE PUBLICATION captured FOR TABLE items")
        for setting in SETTINGS:
            server.execute(f'ALTER DATABASE "{server.info.dbname}" SET {setting}')
        before = server.execute(BINARY).fetchall()
        with played(url, tmp_path, "ADD COLUMN extra int DEFAULT 7") as change:
            change.cut_over()
        assert server.execute(BINARY).fetchall() == before


def test_mariadb(mariadb_url: str, mariadb_database: str, tmp_path: Path) -> None:
    mariadb_execute(mariadb_database, "CREATE TABLE items (id int PRIMARY KEY, a int, b int, c int, d int)")
    mariadb_execute(mariadb_database, "INSERT INTO items SELECT seq, seq, seq, seq, seq FROM seq_1_to_9")
    mariadb_execute(mariadb_url, "SET GLOBAL sql_select_limit = 0")
    try:
        with played(mariadb_database, tmp_path, "ADD COLUMN extra int DEFAULT 7") as change:
            change.cut_over()
            # A silent session is asked for by a second one, which must see it.
            with closing(open_session(change.server.sessions.target, MysqlSession, silence_seconds=1)) as silent:
                assert silent.execute("SELECT SLEEP(3) FROM DUAL")
            mariadb_execute(mariadb_url, "SET GLOBAL sql_select_limit = DEFAULT")
            found = change.run("SELECT id, d, extra FROM items ORDER BY id")
            assert found == [(number, number, 7) for number in range(1, 10)]
    finally:
        mariadb_execute(mariadb_url, "SET GLOBAL sql_select_limit = DEFAULT")
