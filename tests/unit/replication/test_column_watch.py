"""Columns that get the names of others at the source are noticed while their table replicates."""

from collections.abc import Mapping

import msgspec
import pytest

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.states import TaskPhase
from headgate.config.feed import FeedSpec
from headgate.replication.column_watch import COLUMNS_SECONDS, ColumnWatch
from headgate.replication.source_columns import SOURCE_PAUSE_SECONDS, OpenedColumns
from headgate.replication.span_table import SpanTable
from headgate.sinks.known_columns import ColumnNumbers
from headgate.sources.offsets import SourceError
from support.lanes_without_spark import Restarts, is_open, now_is


def spec(database: str, columns: Mapping[str, object] | None = None) -> str:
    feed = {
        "feed": "f",
        "source": {"topic_pattern": ".*", "database": {"dsn": f"dbname={database}"}},
        "sink": {"type": "postgresql", "dsn": "dbname=x", "tables": "evolve"},
        "columns": columns or {},
    }
    return msgspec.json.encode(feed).decode()


def numbered(columns: Mapping[str, int], table: str = "16", types: Mapping[str, str] | None = None) -> ColumnNumbers:
    return ColumnNumbers(table, columns, types=dict.fromkeys(columns, "integer") | dict(types or {}))


class Source:
    """Table → its columns' numbers, by database."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[str, int]] = {"16": {"id": 1, "a": 2, "b": 3}}
        self.types: dict[str, str] = {}
        self.silent: set[str] = set()
        self.asked: list[tuple[str, frozenset[str]]] = []

    def read(self, feed: FeedSpec, opened: Mapping[SpanId, OpenedColumns]) -> Mapping[SpanId, ColumnNumbers]:
        assert feed.source.database is not None
        dsn = str(feed.source.database.dsn)
        tables = {span: columns.numbers.table for span, columns in opened.items()}
        self.asked.append((dsn, frozenset(tables.values())))
        if dsn in self.silent:
            raise SourceError("no answer")
        there = {span: table for span, table in tables.items() if table in self.numbers}
        return {span: numbered(self.numbers[table], table, self.types) for span, table in there.items()}


BEFORE = numbered({"id": 1, "a": 2, "b": 3})


class Watched:
    """Spans of an executor, the source of their tables, and the watch over both."""

    def __init__(self, table: SpanTable, lifecycle: Restarts) -> None:
        self.table, self.source, self.restarted = table, Source(), lifecycle.restarted
        self.now = 0.0
        self.opened: dict[SpanId, OpenedColumns] = {}
        self.watch = ColumnWatch(table, self.opened, self.source.read, lambda: self.now)

    def open(self, numbers: ColumnNumbers = BEFORE, name: str = "s", feed: str = "") -> SpanId:
        span = is_open(self.table, {0: 5}, name, spec=feed or spec("d"), topic=name)
        self.opened[span] = OpenedColumns(numbers)
        return span


@pytest.fixture
def watched(table: SpanTable, lifecycle: Restarts) -> Watched:
    return Watched(table, lifecycle)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"id": 1, "a": 4, "b": 3}, "a"),  # dropped and added again
        ({"id": 1, "a": 3, "b": 2}, "a, b"),  # swapped
        ({"id": 1, "b": 2}, "b"),  # renamed to one that was dropped
    ],
)
def test_a_name_that_is_another_columns_by_now_sends_the_span_back(
    watched: Watched, columns: dict[str, int], named: str
) -> None:
    span = watched.open()
    watched.watch.look()
    assert watched.restarted == []
    watched.source.numbers["16"] = columns
    watched.watch.look()
    assert watched.restarted == [f"column {named} is another one at the source by now"]
    assert now_is(watched.table, span).phase is TaskPhase.OPENING


@pytest.mark.parametrize(
    "columns",
    [
        {"id": 1, "a": 2, "b": 3, "c": 4},  # added: its changes show it
        {"id": 1, "a": 2, "c": 3},  # renamed: too
        {"id": 1, "a": 2},  # dropped
        {},  # the table is gone
    ],
)
def test_what_changes_show_is_left_to_them(watched: Watched, columns: dict[str, int]) -> None:
    watched.open()
    watched.source.numbers["16"] = columns
    watched.watch.look()
    assert watched.restarted == []


def test_a_column_of_another_type_sends_the_span_back(watched: Watched) -> None:
    watched.open()
    watched.source.types["b"] = "bigint"
    watched.watch.look()
    assert watched.restarted == ["column b has another type at the source by now"]


def test_columns_are_compared_under_the_names_of_the_sink(watched: Watched) -> None:
    shaped = spec("d", {"rename": {"a": "b"}, "exclude": ["b"]})
    watched.open(ColumnNumbers("16", {"id": 1, "b": 2}, {"b": 3}), feed=shaped)
    watched.watch.look()
    assert watched.restarted == []
    watched.source.numbers["16"] = {"id": 1, "a": 4, "b": 3}
    watched.watch.look()
    assert watched.restarted == ["column b is another one at the source by now"]


def test_each_source_is_asked_once_and_one_that_is_silent_holds_up_no_other(watched: Watched) -> None:
    watched.open(name="s")
    watched.open(msgspec.structs.replace(BEFORE, table="17"), "t")
    watched.open(name="u", feed=spec("e"))
    is_open(watched.table, {0: 5}, "v", spec=spec("e"), topic="v")
    watched.source.silent.add("dbname=d")
    watched.source.numbers["16"] = {"id": 1, "a": 9, "b": 3}
    assert not watched.watch.is_due(COLUMNS_SECONDS - 1)
    assert watched.watch.is_due(COLUMNS_SECONDS)
    assert not watched.watch.is_due(COLUMNS_SECONDS + 1)
    assert not watched.watch.is_due(2 * COLUMNS_SECONDS), "one is running"
    watched.watch.look()
    asked = sorted(watched.source.asked, key=str)
    assert asked == [("dbname=d", frozenset({"16", "17"})), ("dbname=e", frozenset({"16"}))]
    assert watched.restarted == ["column a is another one at the source by now"]


def test_a_source_that_does_not_answer_is_not_asked_by_each_check(watched: Watched) -> None:
    watched.open()
    watched.source.silent.add("dbname=d")
    watched.watch.look()
    watched.now = SOURCE_PAUSE_SECONDS - 1
    watched.watch.look()
    assert len(watched.source.asked) == 1
    watched.now = SOURCE_PAUSE_SECONDS
    watched.watch.look()
    assert len(watched.source.asked) == 2
    assert watched.watch.is_due(COLUMNS_SECONDS), "no check is running any more"


def test_only_tables_that_are_evolved_and_here_are_watched(watched: Watched) -> None:
    span = watched.open(feed=spec("d").replace("evolve", "create"))
    gone = SpanId("f", "gone")
    watched.opened[gone] = OpenedColumns(BEFORE)
    watched.source.numbers["16"] = {"id": 1, "a": 9, "b": 3}
    assert not watched.watch.is_due(COLUMNS_SECONDS)
    assert watched.opened.keys() == {span}
    watched.watch.look()
    assert (watched.source.asked, watched.restarted) == ([], [])
