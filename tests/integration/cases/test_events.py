"""The cases whose input is records of a topic, in both sinks: the rows that are right, or the refusal."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from fixtures.services import mariadb_execute
from support.cases import CASES, Case, Player

pytestmark = pytest.mark.integration

REFUSED = {
    "056": ("change_undecodable", "'data' is missing or empty", 1),
    "068": ("change_undecodable", r"not a Debezium envelope.*unwrapping transforms are not supported", 0),
    "074": ("value_refused", r"key columns \(email\) are not the table's \(id\).*message.key.columns", 0),
    "690": ("change_undecodable", "the key is not .*Expected .object., got .int.", 0),
    "510": ("value_refused", "source.output_nulls", 0),
}
"""Case: the error, what it says, and how many records are applied before it."""

WITH_EVENTS = sorted(folder.name for folder in CASES.iterdir() if (folder / "events.jsonl").exists())
BY_HAND = {"w1"}
"""Played by a test of their own."""


class Table:
    """The case's table in one of the sinks."""

    def __init__(self, kind: str, dsn: str, execute: Callable[[str], list[tuple]]) -> None:
        self.kind, self._dsn, self.execute = kind, dsn, execute

    def player(self, case: Case) -> Player:
        self.execute(case.text(f"target.{self.kind}.sql") or "")
        sink = {"type": "postgresql" if self.kind == "pg" else "mysql", "dsn": self._dsn}
        schema = "public" if self.kind == "pg" else self._dsn.rsplit("/", 1)[1]
        source = {"topics": ["t"], "format": case.format}
        return Player({"feed": "shop", "source": source, "sink": sink}, f"{schema}.{case.table}")


@pytest.fixture(params=["pg", "my"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    if request.param == "my":
        url = request.getfixturevalue("mariadb_database")
        yield Table("my", url, lambda statement: mariadb_execute(url, statement))
        return
    dsn = request.getfixturevalue("postgres_database")
    with psycopg.connect(dsn, autocommit=True) as connection:

        def execute(statement: str) -> list[tuple]:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

        yield Table("pg", dsn, execute)


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def records_of(case: Case) -> list[tuple[int, bytes | None, bytes | None]]:
    """A record of an aborted transaction has an offset but is not delivered, and each transaction ends in a marker."""
    found, offset = [], 0
    for record in case.records():
        if record.tx != "abort":
            found.append((offset, bytes_of(record.key), bytes_of(record.value)))
        offset += 1 if record.tx is None else 2
    return found


def plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("number", [number for number in WITH_EVENTS if number not in BY_HAND])
def test_records_become_the_rows_that_are_right(table: Table, number: str) -> None:
    case = Case(number)
    if case.text(f"target.{table.kind}.sql") is None:
        pytest.skip(f"the case has no table for {table.kind}")
    records = records_of(case)
    result = table.player(case).apply(records)
    if number in REFUSED:
        code, said, applied = REFUSED[number]
        assert (result.error_code, result.positions) == (code, {0: applied} if applied else {}), result.error
        assert result.error is not None
        assert re.search(said, result.error), result.error
        return
    assert (result.error, result.positions) == (None, {0: records[-1][0] + 1})
    for query, rows in case.wanted(table.kind):
        assert [[plain(value) for value in row] for row in table.execute(query)] == rows, query


def test_a_backlog_with_a_renamed_column_passes_after_the_same_rename(table: Table) -> None:
    """Case w1, the smallest of cases 21 and 41."""
    case = Case("w1")
    player, records = table.player(case), records_of(case)
    result = player.apply(records)
    assert (result.error_code, result.positions) == ("sink_column_missing", {0: 1})
    assert result.error is not None
    assert "no column b" in result.error
    assert table.execute("SELECT id, a FROM w1") == [(1, "x")]
    table.execute("ALTER TABLE w1 RENAME COLUMN a TO b")
    result = player.apply(records)
    assert (result.error, result.positions) == (None, {0: 3})
    assert table.execute("SELECT id, b FROM w1 ORDER BY id") == [(1, "x"), (2, "y"), (3, "z")]
