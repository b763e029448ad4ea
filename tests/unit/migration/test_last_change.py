"""Which record of a topic is the table's last change: by LSN at PostgreSQL, by GTID and place at MariaDB."""

import json
from typing import Any

import pytest

from headgate.migration.shell.feeds import Search
from headgate.migration.strategies.lane import LastChange


def event(op: str = "u", **source: Any) -> bytes:
    return json.dumps({"op": op, "before": None, "after": {"id": 1}, "source": {"db": "d"} | source}).encode()


def wrapped(value: bytes) -> bytes:
    return json.dumps({"schema": {}, "payload": json.loads(value)}).encode()


def test_a_change_of_postgresql_is_found_by_its_lsn_and_operation() -> None:
    search = Search(LastChange(("u", "c"), lsn=7))
    others = [event(lsn=6), event("d", lsn=7), None, b"not json", b"{}"]
    assert [search.ends_with(value) for value in others] == [False] * len(others)
    assert search.ends_with(event("c", lsn=7))


@pytest.mark.parametrize("form", [lambda value: value, wrapped])
def test_a_mark_of_mariadb_ends_with_its_second_place_however_often_the_first_is_sent(form: Any) -> None:
    search = Search(LastChange(("u",), gtid="0-1-9", places=2))
    before = [event(gtid="0-1-8", pos=10), event(gtid="0-1-9", pos=50), event(gtid="0-1-9", pos=50)]
    assert [search.ends_with(form(value)) for value in before] == [False] * 3
    assert search.ends_with(form(event(gtid="0-1-9", pos=90)))
