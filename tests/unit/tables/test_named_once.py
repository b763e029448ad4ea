"""Two names of one table at the sink, where only the sink shows that they are."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.config.feed import FeedSpec
from headgate.records.control import SpanPlan
from headgate.records.identifiers import split_table
from headgate.sources.topics import TableClashError
from headgate.tables import named_once
from headgate.tables.named_once import check_named_once, named_twice


class At:
    """A sink whose bare names are in ``public`` (none if ``space`` is None), and that knows tables by small letters."""

    def __init__(self, space: str | None) -> None:
        self.space = space
        self.asked: list[str] = []

    def place(self, name: str) -> tuple[str, str] | None:
        self.asked.append(name)
        space, table = split_table(name)
        space = space or self.space
        return None if space is None else (space.lower(), table.lower())


@pytest.fixture
def at_sink(monkeypatch: pytest.MonkeyPatch) -> At:
    found = At("public")

    @contextmanager
    def opened(_target: object) -> Iterator[At]:
        yield found

    monkeypatch.setattr(named_once, "open_catalogue", opened)
    return found


def feed() -> FeedSpec:
    sink = {"type": "postgresql", "dsn": "dbname=y"}
    return FeedSpec.model_validate({"feed": "f", "source": {"topics": ["t"]}, "sink": sink})


def plans(*tables: str) -> list[SpanPlan]:
    return [SpanPlan(table, "t", table, {0: 0}) for table in tables]


@pytest.mark.parametrize(
    ("known", "joining", "twice"),
    [
        ((), ("orders", "public.orders"), ["public.orders"]),
        ((), ("orders@t=7", "public.orders@t=7"), ["public.orders@t=7"]),
        ((), ("orders@t=7", "public.orders@t=8"), []),
        ((), ("orders@t=7", "public.orders@u=8"), ["public.orders@u=8"]),
        ((), ("orders", "public.orders@t=7"), ["public.orders@t=7"]),
        ((), ("public.orders", "public.Orders"), ["public.Orders"]),
        ((), ("orders", "sales.orders"), []),
        (("public.orders@t=7",), ("orders@t=7", "orders@t=8"), ["orders@t=7"]),
        (("orders", "public.orders"), ("orders2",), []),
    ],
)
def test_one_table_has_one_name(
    at_sink: At, known: tuple[str, ...], joining: tuple[str, ...], twice: list[str]
) -> None:
    found = named_twice(feed(), plans(*joining), plans(*known))
    assert list(found) == twice
    assert all("are two names of the same rows of table public.orders at the sink" in why for why in found.values())


def test_a_sink_is_asked_about_doubtful_names_only(at_sink: At) -> None:
    assert named_twice(feed(), plans("a.orders@t=1", "a.orders@t=2", "b.orders", "c.lines", "bare")) == {}
    assert at_sink.asked == []


def test_a_name_without_a_place_is_left_to_what_needs_one(at_sink: At) -> None:
    at_sink.space = None
    assert named_twice(feed(), plans("orders", "public.orders")) == {}


def test_tables_that_a_feed_has_already_do_not_keep_it_from_being_updated(at_sink: At) -> None:
    both = plans("orders", "public.orders")
    check_named_once(feed(), both, {"orders", "public.orders"})
    with pytest.raises(TableClashError, match=r"orders and public\.orders are two names"):
        check_named_once(feed(), both, {"orders"})
