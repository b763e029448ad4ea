"""Stored functions and views that are called like the server's own: no statement of Headgate runs one of them."""

import ast
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

import headgate
from fixtures.services import mariadb_connect, mariadb_execute
from headgate.databases.address import Target
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import ChangeBatch, OffsetRange
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.verify.comparing import compare_table
from headgate.verify.mysql import MysqlSide
from headgate_lab.chaos.hostile_functions import HOSTILE_DATABASE, is_sprung, plant
from support import build

pytestmark = pytest.mark.integration

SHADOWS_MIN = 300
"""MariaDB 10.11 has some 210 functions and 80 tables of information_schema, each in two spellings."""

KNOWN_TO_THE_PARSER = """
    ADDDATE BIT_AND BIT_OR BIT_XOR CAST COUNT CURDATE CURTIME DATE_ADD DATE_SUB EXTRACT GROUP_CONCAT JSON_ARRAYAGG
    JSON_OBJECTAGG MAX MID MIN NOW POSITION SESSION_USER STD STDDEV STDDEV_POP STDDEV_SAMP SUBDATE SUBSTR SUBSTRING SUM
    SYSDATE SYSTEM_USER TRIM VARIANCE VAR_POP VAR_SAMP
    """.split()  # noqa: SIM905 - words to be read
"""With a space before the parenthesis they are functions of the session's database, unless IGNORE_SPACE is set."""

Execute = Callable[[str], list[tuple]]


@pytest.fixture(scope="module")
def trap(mariadb_url: str) -> Iterator[tuple[str, Execute]]:
    """The URL of a database full of them, and a session beside."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with closing(mariadb_connect(mariadb_url)) as connection, connection.cursor() as cursor:

        def execute(statement: str) -> list[tuple]:
            cursor.execute(statement)
            return list(cursor.fetchall())

        execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        assert plant(execute, [name]) > SHADOWS_MIN
        yield mariadb_url + name, execute
        for database in (name, HOSTILE_DATABASE, "headgate"):
            execute(f"DROP DATABASE IF EXISTS {database}")


@pytest.fixture
def sprung(trap: tuple[str, Execute]) -> Callable[[], bool]:
    """Whether any of them has been run in this test."""
    execute = trap[1]
    execute(f"ALTER SEQUENCE {HOSTILE_DATABASE}.sprung RESTART 1")
    return lambda: is_sprung(execute)


def put(offset: int, number: int, value: object) -> Change:
    return Change(0, offset, Operation.UPSERT, {"id": number}, {"id": number, "v": value, "b": "AAE="}, None, 0)


def test_a_feed_and_verify_run_nothing_of_the_database_s_own(
    trap: tuple[str, Execute], sprung: Callable[[], bool]
) -> None:
    url, _ = trap
    mariadb_execute(url, "CREATE TABLE t (id int PRIMARY KEY, v varchar(9), b varbinary(9))")
    sink = MysqlSink(RelationalSettings(url))
    claim = build.claim(table="t", topic="shop.t")
    sink.check(["t"], claim.identity)
    sink.own_id()
    sink.claim(claim)
    with closing(sink.writer()) as writer:
        drop = Change(0, 2, Operation.DELETE, {"id": 1}, None, None, 0)
        few = [put(0, 1, "a"), put(1, 2, "b"), drop, put(3, 2, ABSENT)]
        writer.apply(ChangeBatch(claim, {0: OffsetRange(0, 4)}, few))
        many = [put(4 + number, number, "c") for number in range(300)]
        writer.apply(ChangeBatch(claim, {0: OffsetRange(4, 304)}, many))
        truncate = Change(0, 304, Operation.TRUNCATE, {}, None, None, 0)
        writer.apply(ChangeBatch(claim, {0: OffsetRange(304, 306)}, [truncate, put(305, 2, "b")]))
    table = f"{url.rsplit('/', 1)[1]}.t"
    with closing(MysqlSide(Target(url))) as one, closing(MysqlSide(Target(url))) as other:
        assert compare_table(one, other, table, table).differences == 0
    sink.seal(claim)
    sink.forget(claim.identity)
    assert mariadb_execute(url, "SELECT id, v FROM t") == [(2, "b")]
    assert not sprung()


@pytest.mark.parametrize("call", ["COUNT ('x')", "SUM ('1')"])
def test_the_trap_catches_a_space_before_a_parenthesis(
    trap: tuple[str, Execute], sprung: Callable[[], bool], call: str
) -> None:
    url, _ = trap
    with pytest.raises(pymysql.Error, match="hijacked"):
        mariadb_execute(url, f"SELECT {call}")
    assert sprung()


@pytest.mark.parametrize("call", ["COUNT('x')", "LENGTH ('x')", "COALESCE ('x')", "GET_LOCK ('x', 0)"])
def test_without_one_and_where_the_parser_does_not_know_the_name_the_server_s_own_is_meant(
    trap: tuple[str, Execute], sprung: Callable[[], bool], call: str
) -> None:
    url, _ = trap
    mariadb_execute(url, f"SELECT {call}")
    assert not sprung()


def test_no_statement_of_the_product_has_a_space_there() -> None:
    spaced = re.compile(rf"\b(?:{'|'.join(KNOWN_TO_THE_PARSER)})\s+\(")
    assert spaced.search("SELECT COUNT (*)") is not None
    found = [
        (path.name, node.lineno, node.value)
        for path in Path(headgate.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and spaced.search(node.value)
    ]
    assert found == []
