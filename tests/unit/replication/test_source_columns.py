"""What identifies a source's columns where its catalogue does not: statements, as far as they can be read."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from headgate.agent.core.executor import SpanId
from headgate.config.feed import parse_feed
from headgate.formats.schema_changes import TableChange
from headgate.records.control import SpanPlan
from headgate.replication import source_columns
from headgate.replication.source_columns import OpenedColumns, SourceColumns
from headgate.sinks.known_columns import ColumnNumbers, KnownColumns, StatementNumbers
from headgate.sources.offsets import SourceError
from headgate.sources.schema_changes import TopicRead

FEED = """
feed: f
source: {topics: [shop.d.t], format: %s, database: {dsn: "mysql://u@127.0.0.1/d"}}
sink: {type: postgresql, dsn: dbname=y, tables: evolve}
"""
SPAN = SpanId("f", "t")
PLAN = SpanPlan(span="t", topic="shop.d.t", table="t", start={0: 0})


class Topics:
    """In the place of SchemaChanges: one topic, or none."""

    def __init__(self) -> None:
        self.found: TopicRead | SourceError | None = None
        self.asked: list[str] = []

    def read(self, _spec: object, topic: str, wanted: Sequence[tuple[str, str]]) -> TopicRead | None:
        assert list(wanted) == [("d", "t")]
        self.asked.append(topic)
        if isinstance(self.found, SourceError):
            raise self.found
        return self.found

    def has(self, *statements: tuple[str, Sequence[str]], since: int = 0, topic_id: str = "x") -> None:
        changes = [
            (offset, TableChange("d", "t", tuple(columns), statement))
            for offset, (statement, columns) in enumerate(statements, since)
        ]
        self.found = TopicRead(topic_id, since, since + len(changes), {("d", "t"): changes})


class Source:
    """A table whose catalogue has types only, and the statements that altered it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.types = {"id": "int(11)", "a": "text"}
        self.columns, self.topics = SourceColumns(None), Topics()  # type: ignore[arg-type]
        self.columns._changes = self.topics  # type: ignore[assignment]
        monkeypatch.setattr(source_columns, "source_numbers", lambda *_: self._found())
        monkeypatch.setattr(source_columns, "numbers_now", self._now)

    def _found(self) -> ColumnNumbers:
        return ColumnNumbers("d.t", {}, types=self.types)

    def _now(self, _spec: object, tables: set[str]) -> Mapping[str, ColumnNumbers]:
        assert tables == {"d.t"}
        return {"d.t": self._found()}

    def at_claim(self, before: StatementNumbers | None = None, form: str = "debezium-json") -> OpenedColumns:
        said: Any = None
        found = self.columns.at_claim(parse_feed(FEED % form), SPAN, PLAN, said, before)
        assert found is not None
        return found

    def now(self, opened: OpenedColumns) -> ColumnNumbers:
        return self.columns.now(parse_feed(FEED % "debezium-json"), {SPAN: opened})[SPAN]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    return Source(monkeypatch)


CREATED = ("CREATE TABLE t", ["id", "a"])
REPLACED = ("ALTER TABLE t DROP a, ADD a text", ["id", "a"])


def test_statements_number_the_columns_and_are_read_on_from_where_they_are_known(source: Source) -> None:
    source.topics.has(CREATED)
    first = source.at_claim()
    assert source.topics.asked == ["shop"]
    assert first.statements is not None
    assert (first.statements.topic, first.statements.table, first.statements.until) == ("shop", "d.t", 1)
    assert first.numbers == ColumnNumbers(first.statements.identity, first.statements.columns, types=source.types)
    assert source.now(first) == first.numbers

    source.topics.has(REPLACED, since=1)
    now = source.now(first)
    assert now.table == first.numbers.table
    assert [name for name, number in now.columns.items() if number != first.numbers.columns[name]] == ["a"]
    assert source.at_claim(first.statements).numbers == now


def test_a_table_of_which_no_statement_is_left_is_numbered_by_the_catalogue(source: Source) -> None:
    source.topics.has(since=7)
    first = source.at_claim()
    assert len(set(first.numbers.columns.values())) == 2
    source.topics.has(REPLACED, since=7)
    now = source.now(first).columns
    assert (now["id"], now["a"] != first.numbers.columns["a"]) == (first.numbers.columns["id"], True)


def test_a_column_whose_statement_is_still_to_come_has_no_number(source: Source) -> None:
    source.topics.has(CREATED)
    source.types = {"id": "int(11)", "b": "text"}
    opened = source.at_claim()
    assert opened.numbers.columns.keys() == {"id"}
    source.topics.has(CREATED, ("ALTER TABLE t CHANGE a b text", ["id", "b"]))
    assert opened.statements is not None
    assert source.now(opened).columns["b"] == opened.statements.columns["a"]


@pytest.mark.parametrize("found", [None, SourceError("no right to read it")])
def test_without_the_topic_only_types_are_known(source: Source, found: SourceError | None) -> None:
    source.topics.found = found
    opened = source.at_claim()
    assert opened == OpenedColumns(ColumnNumbers("d.t", {}, types=source.types))
    source.types = {"id": "int(11)", "a": "varchar(3)"}
    assert source.now(opened).types == source.types


@pytest.mark.parametrize("found", [None, SourceError("no answer")])
def test_numbers_that_are_known_outlast_a_topic_that_cannot_be_read(source: Source, found: SourceError | None) -> None:
    source.topics.has(CREATED)
    before = source.at_claim()
    source.topics.found = found
    opened = source.at_claim(before.statements)
    assert opened == OpenedColumns(ColumnNumbers(before.numbers.table, {}, types=source.types), before.statements)


@pytest.mark.parametrize("found", [None, SourceError("no right to read it any more")])
def test_types_are_compared_while_the_topic_cannot_be_read(source: Source, found: SourceError | None) -> None:
    source.topics.has(CREATED)
    opened = source.at_claim()
    source.topics.found, source.types = found, {"id": "int(11)", "a": "varchar(3)"}
    assert source.now(opened) == ColumnNumbers(opened.numbers.table, {}, types=source.types)


def test_one_check_reads_a_topic_once_for_all_tables(source: Source) -> None:
    source.topics.has(CREATED)
    opened = source.at_claim()
    source.topics.asked.clear()
    spans = [SpanId("f", name) for name in ("t", "u", "v")]
    found = source.columns.now(parse_feed(FEED % "debezium-json"), dict.fromkeys(spans, opened))
    assert found.keys() == set(spans)
    assert source.topics.asked == ["shop"]


def test_columns_that_are_numbered_from_the_start_again_are_not_compared_with_their_former_numbers(
    source: Source,
) -> None:
    source.topics.has(CREATED)
    before = source.at_claim()
    source.topics.has(since=7)  # and what the sink kept of the statements is lost
    again = source.at_claim()
    assert KnownColumns(applied=("a", "id"), numbers=before.numbers).replaced(again.numbers) == []


def test_a_topic_that_was_created_again_numbers_another_table(source: Source) -> None:
    source.topics.has(CREATED)
    before = source.at_claim()
    source.topics.has(CREATED, topic_id="y")
    assert source.at_claim(before.statements).numbers.table != before.numbers.table


def test_statements_that_are_gone_or_not_understood_are_reported(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.topics.has(CREATED)
    before = source.at_claim()
    source.topics.has(("ALTER TABLE t /*!50100 DROP a */", ["id", "a"]), since=5)
    with caplog.at_level(logging.WARNING):
        assert source.at_claim(before.statements).numbers == before.numbers
        assert source.at_claim(before.statements).numbers == source.now(before) == before.numbers
    gone, unread = (record.getMessage() for record in caplog.records)
    assert "statements from offset 1 to 5 are gone" in gone
    assert "offset 5: the columns of table d.t keep their numbers by name" in unread


def test_other_formats_have_no_such_topic(source: Source) -> None:
    source.topics.has(CREATED)
    assert source.at_claim(form="maxwell-json").numbers.columns == {}
    assert source.topics.asked == []


def test_a_topic_that_cannot_be_read_is_not_asked_for_by_each_table(source: Source) -> None:
    source.topics.found = SourceError("no right to read it")
    for _ in range(3):
        assert source.at_claim().statements is None
    assert source.topics.asked == ["shop"]
