"""A feed's ``snapshot``: what may be written, and what contradicts it."""

import json
from typing import Any

import pytest

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed


def feed(source: dict[str, Any] | None = None, **more: Any) -> FeedSpec:
    given = {"topics": ["shop.public.a", "shop.public.b"], "database": {"dsn": "dbname=x"}} | (source or {})
    given = {name: value for name, value in given.items() if value is not None}
    sink = {"type": "postgresql", "dsn": "dbname=y"}
    return parse_feed(json.dumps({"feed": "f", "source": given, "sink": sink, **more}))


def refused(source: dict[str, Any] | None = None, **more: Any) -> str:
    with pytest.raises(FeedSpecError) as error:
        feed(source, **more)
    return str(error.value)


def test_a_mode_alone_is_short_for_the_option() -> None:
    assert feed().snapshot.mode == "never"
    assert feed(snapshot="initial") == feed(snapshot={"mode": "initial"})
    assert feed(snapshot="initial").snapshot.existing_rows == "refuse"
    assert feed(feed(snapshot="initial").source.model_dump(exclude_defaults=True), snapshot="initial")


def test_a_table_may_differ_from_its_feed() -> None:
    found = feed(snapshot={"mode": "initial", "max_rows_per_second": 5}, tables={"public.a": {"snapshot": "never"}})
    assert not found.for_table("shop.public.a").snapshot.is_initial
    assert found.for_table("shop.public.b").snapshot.max_rows_per_second == 5


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        ("inital", "mode"),
        ({"mode": "initial", "max_rows_per_second": 0}, "it must be at least 1"),
        ({"mode": "initial", "rows": 1}, "rows"),
        ({"max_rows_per_second": 5}, "max_rows_per_second needs mode: initial"),
        ({"mode": "never", "existing_rows": "keep"}, "existing_rows needs mode: initial"),
    ],
)
def test_what_is_not_an_option_is_refused(snapshot: Any, words: str) -> None:
    assert words in refused(snapshot=snapshot)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"database": None}, "Name it in source.database"),
        ({"start": "earliest"}, "source.start: earliest contradicts snapshot: initial"),
        ({"start_ts": "2026-11-21T17:00:00Z"}, "source.start_ts cannot be used with snapshot: initial"),
        ({"topics": ["a.b.c"], "start_offsets": {"a.b.c": {0: 5}}}, "source.start_offsets cannot be used with"),
        ({"topics": None, "change_log": "orders"}, "source.change_log cannot be used with snapshot: initial"),
    ],
)
def test_what_contradicts_it_is_refused(source: dict[str, Any], words: str) -> None:
    assert words in refused(source, snapshot="initial")


def test_it_may_be_of_one_table_beside_the_start_of_the_others() -> None:
    tables = {"public.a": {"snapshot": "initial"}}
    assert feed({"start": "earliest"}, tables=tables).for_table("shop.public.a").snapshot.is_initial
    assert "tables.public.a.snapshot: initial copies rows" in refused({"database": None}, tables=tables)
    assert feed({"start": "latest"}, snapshot="initial").snapshot.is_initial


def test_rows_of_a_table_with_a_row_for_every_change_are_not_deleted() -> None:
    given = {"topics": ["shop.public.a"], "database": {"dsn": "dbname=x"}}
    sink = {"type": "delta", "dsn": "file:///lake", "mode": "append"}

    def parsed(**snapshot: str) -> FeedSpec:
        return parse_feed(
            json.dumps({"feed": "f", "source": given, "sink": sink, "snapshot": {"mode": "initial", **snapshot}})
        )

    assert parsed(existing_rows="keep").snapshot.is_initial
    with pytest.raises(FeedSpecError, match=r"snapshot\.existing_rows: delete cannot be used with sink\.mode: append"):
        parsed(existing_rows="delete")
