"""Stored functions of the target's database that are called like the server's own: none of them may be run."""

import re
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

import headgate.sinks.relational.mysql as dialect
from fixtures.services import mariadb_execute
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import ChangeBatch, OffsetRange
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration

FOUND_MIN = 10
"""Statements call more functions than that; fewer would mean that they are not found any more."""


def called() -> list[str]:
    """What the dialect's statements call, and whatever else is written like a call in capitals."""
    folder = Path(dialect.__file__).parent
    texts = [path.read_text() for path in (*folder.glob("*.py"), *folder.parent.glob("*.py"))]
    return sorted({name for text in texts for name in re.findall(r"\b([A-Z][A-Z_]+)\(", text)})


def put(offset: int, number: int, value: object) -> Change:
    return Change(0, offset, Operation.UPSERT, {"id": number}, {"id": number, "v": value, "b": "AAE="}, None, 0)


def test_a_feed_runs_no_function_that_is_called_like_the_server_s_own(mariadb_database: str) -> None:
    mariadb_execute(mariadb_database, "CREATE TABLE t (id int PRIMARY KEY, v varchar(9), b varbinary(9))")
    shadows = []
    for name in called():
        body = f"BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'hijacked: {name}'; RETURN 1; END"
        try:
            mariadb_execute(mariadb_database, f"CREATE FUNCTION `{name}` (a text) RETURNS text NO SQL {body}")
        except pymysql.Error:
            continue
        shadows.append(name)
    assert len(shadows) > FOUND_MIN
    sink = MysqlSink(RelationalSettings(mariadb_database))
    claim = build.claim(table="t", topic="shop.t")
    sink.check(["t"], claim.identity)
    sink.own_id()
    sink.claim(claim)
    with closing(sink.writer()) as writer:
        drop = Change(0, 2, Operation.DELETE, {"id": 1}, None, None, 0)
        writer.apply(
            ChangeBatch(claim, {0: OffsetRange(0, 4)}, [put(0, 1, "a"), put(1, 2, "b"), drop, put(3, 2, ABSENT)])
        )
    sink.seal(claim)
    sink.forget(claim.identity)
    assert mariadb_execute(mariadb_database, "SELECT id, v FROM t") == [(2, "b")]


def test_a_stored_function_is_run_where_it_is_named_with_its_database(mariadb_database: str) -> None:
    """The shadows would be seen if they were run."""
    database = mariadb_database.rsplit("/", 1)[1]
    body = "BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'hijacked'; RETURN 1; END"
    mariadb_execute(mariadb_database, f"CREATE FUNCTION `GET_LOCK` (a text) RETURNS text NO SQL {body}")
    with pytest.raises(pymysql.Error, match="hijacked"):
        mariadb_execute(mariadb_database, f"SELECT {database}.`GET_LOCK`('x')")
