"""The types of a feed's tables, as tasks read them from the source's catalogue."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headgate.config.expressions import Kind
from headgate.databases.errors import DatabaseError
from headgate.formats.change import CONNECTOR, Change, Operation
from headgate.formats.expressions.declared import SourceTypesUnavailableError
from headgate.replication import catalogue_types
from headgate.replication.catalogue_types import AGAIN_SECONDS, CLOCKS_MS, PAUSE_SECONDS, TYPES_SECONDS, CatalogueTypes
from headgate.replication.feed_parts import FeedParts
from unit.tables.definitions import postgres_column, postgres_table


class Source:
    """A source's catalogue, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tables: dict[str, Any] = {}
        self.silent = False
        self.asked: list[str] = []

    def has(self, name: str) -> bool:
        return name in self.tables

    def definition(self, name: str) -> Any:
        self.asked.append(name)
        return self.tables.get(name)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    made = Source()

    @contextmanager
    def opened(_target: object) -> Iterator[Any]:
        if made.silent:
            made.asked.append("-")
            raise DatabaseError("no answer")
        yield SimpleNamespace(has=made.has, definition=made.definition)

    monkeypatch.setattr(catalogue_types, "open_catalogue", opened)
    return made


def table(type_: str) -> Any:
    return postgres_table(postgres_column("id", "bigint"), postgres_column("x", type_), key=("id",))


def parts(**more: Any) -> FeedParts:
    spec = {
        "feed": "f",
        "source": {"topics": ["t.shop.a"], "database": {"dsn": "postgresql://ann@db/shop"}, **more},
        "sink": {"type": "postgresql", "dsn": "dbname=x", "tables": "existing"},
        "where": "x > 5",
    }
    return FeedParts(msgspec.json.encode(spec).decode())


def types(source: Source, said: str | None = None, **more: Any) -> Any:
    return CatalogueTypes(parts(**more).spec, lambda: source.now).of("t.shop.a", "a", lambda: said)


def test_types_are_read_once_a_minute_and_when_a_value_does_not_fit(source: Source) -> None:
    source.tables["shop.a"] = table("numeric(10,2)")
    known = types(source)
    first = known.known()
    assert (first.columns["x"].kind, first.columns["x"].scale, first.is_debezium) == (Kind.NUMERIC, 2, True)
    source.now = TYPES_SECONDS - 1
    assert known.known() is first
    assert source.asked == ["shop.a"]
    assert known.again() is first, "they are the same still"
    assert source.asked == ["shop.a"] * 2
    source.tables["shop.a"] = table("bigint")
    assert known.again() is first, "just now"
    source.now += AGAIN_SECONDS
    assert known.again().columns["x"].kind is Kind.INTEGER


def test_a_source_that_does_not_answer_is_asked_now_and_then(source: Source) -> None:
    source.silent = True
    known = types(source)
    for _ in range(3):
        with pytest.raises(SourceTypesUnavailableError, match="cannot be read: no answer"):
            known.known()
    assert source.asked == ["-"]
    source.now, source.silent, source.tables["shop.a"] = PAUSE_SECONDS, False, table("date")
    first = known.known()
    source.now, source.silent = source.now + TYPES_SECONDS, True
    assert known.known() is first, "what was read before counts until it answers"


def test_a_table_is_found_by_the_name_that_its_events_have(source: Source) -> None:
    source.tables["shop.Order Lines"] = table("date")
    assert types(source, "shop.Order Lines").known().columns["x"].kind is Kind.DATE
    with pytest.raises(SourceTypesUnavailableError, match=r"has no table shop\.a, .* Grant SELECT on it"):
        types(source).known()


def test_a_task_asks_only_if_an_event_does_not_show_its_types(source: Source) -> None:
    source.tables["shop.a"] = table("numeric(10,2)")
    shaping = parts().shaping("t.shop.a", None, "a")
    assert shaping is not None

    def kept(value: object, **meaning: str) -> bool:
        change = Change(0, 0, Operation.UPSERT, {"id": 1}, {"x": value}, None, 0, {CONNECTOR: "postgresql", **meaning})
        return shaping.shaped([change])[0].operation is Operation.UPSERT

    assert kept(7, x="int64")
    assert source.asked == []
    assert kept("10.00")
    assert not kept("4.99")
    assert source.asked == ["shop.a"]


def test_an_event_is_judged_by_what_was_read_after_it(source: Source) -> None:
    source.tables["shop.a"] = table("text")
    feed = CatalogueTypes(parts().spec, lambda: source.now, lambda: round(source.now * 1000) + 100_000)
    known = feed.of("t.shop.a", "a", lambda: None)
    first = known.known()
    assert known.since(99_999 - CLOCKS_MS) is first, "it is older than the reading"
    assert len(source.asked) == 1
    with pytest.raises(SourceTypesUnavailableError, match=r"may be younger .* read again in 2 s"):
        known.since(100_000)
    source.now = AGAIN_SECONDS
    assert known.since(10**12) is first, "whatever the clocks show, it was read while the event was there"
    assert len(source.asked) == 2
    source.now, source.silent = 2 * AGAIN_SECONDS, True
    with pytest.raises(SourceTypesUnavailableError, match="may be younger"):
        known.since(100_000)
    assert known.again() is first
