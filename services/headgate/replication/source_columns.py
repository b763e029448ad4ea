"""What identifies the columns of a source's tables: its catalogue, or the statements that a connector has recorded.

PostgreSQL numbers columns. MySQL and MariaDB do not, so theirs are numbered by the connector's topic of schema changes
(statement_columns). Without that topic only the types of columns are known.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.config.feed import FeedSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.records.identifiers import parse_identifier
from headgate.replication.statement_columns import first_numbers, numbers_after
from headgate.sinks.known_columns import ColumnNumbers, StatementNumbers
from headgate.sources.offsets import SourceError
from headgate.sources.schema_changes import SchemaChanges, TopicRead, schema_topic_of
from headgate.tables.evolution import numbers_now, source_numbers
from headgate.tables.missing import Said

__all__ = ["SOURCE_PAUSE_SECONDS", "OpenedColumns", "SourceColumns", "source_spelling"]

SOURCE_PAUSE_SECONDS: Final = 60.0
"""A source that does not answer keeps a claim's thread for its time-out: not one of each table."""

_log = logging.getLogger(__name__)


class OpenedColumns(msgspec.Struct, frozen=True):
    """The source's columns of a table when it was opened. ``statements``: what they are numbered by, if statements."""

    numbers: ColumnNumbers
    statements: StatementNumbers | None = None


class SourceColumns:
    """Reads them for one agent, for several threads."""

    def __init__(self, source: KafkaConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._changes, self._clock = SchemaChanges(source), clock
        self._asked_again: dict[str, float] = {}
        """When a source that did not answer is asked again (monotonic seconds)."""
        self._reported: dict[str, int] = {}
        """Table, as its statements identify it → the offset below which what is wrong with them was logged."""

    def at_claim(
        self, spec: FeedSpec, span: SpanId, plan: SpanPlan, said: Said, before: StatementNumbers | None
    ) -> OpenedColumns | None:
        """The table's columns under the source's names. ``before``: how far the statements are known.

        None without a catalogue, and if the source does not answer. A table does not wait for that: its changes come
        from the log, and the next claim asks again.
        """
        database = source_spelling(spec)
        if self._clock() < self._asked_again.get(database, 0.0):
            return None
        try:
            found = source_numbers(spec, plan, said)
        except SourceError as error:
            self._asked_again[database] = self._clock() + SOURCE_PAUSE_SECONDS
            _log.warning("span %s: columns that were dropped and added again are not noticed: %s", span, error)
            return None
        if found is None or found.columns:
            return None if found is None else OpenedColumns(found)
        numbered = self._by_statements(spec, plan.topic, found, before)
        if numbered is not None:
            return numbered
        # The numbers that were known stay those of the table.
        return OpenedColumns(found if before is None else _numbered(found, before, {}), before)

    def now(self, spec: FeedSpec, opened: Mapping[SpanId, OpenedColumns]) -> dict[SpanId, ColumnNumbers]:
        """The columns of tables of one source, under its names. Lacks those that are gone. Raises SourceError."""
        tables = {
            span: each.numbers.table if each.statements is None else each.statements.table
            for span, each in opened.items()
        }
        found = numbers_now(spec, set(tables.values()))
        present: dict[SpanId, ColumnNumbers] = {}
        topics: dict[str, TopicRead | None] = {}
        wanted: dict[str, set[str]] = {}
        for each in opened.values():
            if each.statements is not None:
                wanted.setdefault(each.statements.topic, set()).add(each.statements.table)
        for span, each in opened.items():
            numbers = found.get(tables[span])
            if numbers is None:
                continue
            if each.statements is not None:
                by = each.statements
                if by.topic not in topics:
                    topics[by.topic] = self._topic(spec, by.topic, wanted[by.topic])
                read = topics[by.topic]
                numbers = _numbered(numbers, by, {}) if read is None else self._read_on(numbers, by, read).numbers
            present[span] = numbers
        return present

    def _topic(self, spec: FeedSpec, topic: str, tables: Collection[str]) -> TopicRead | None:
        """None also if it cannot be read. Types are compared without it, and it is asked for again after a while."""
        place = f"topic {topic}"
        if self._clock() < self._asked_again.get(place, 0.0):
            return None
        try:
            return self._changes.read(spec, topic, [_database_and_table(table) for table in tables])
        except SourceError as error:
            self._asked_again[place] = self._clock() + SOURCE_PAUSE_SECONDS
            _log.warning(
                "topic %s: columns of its tables that got the names of others are not noticed: %s", topic, error
            )
            return None

    def _by_statements(
        self, spec: FeedSpec, topic: str, found: ColumnNumbers, before: StatementNumbers | None
    ) -> OpenedColumns | None:
        """None where no statements are, and if they cannot be read."""
        schema_topic = schema_topic_of(spec, topic)
        if schema_topic is None:
            return None
        if before is None or (before.topic, before.table) != (schema_topic, found.table):
            before = StatementNumbers(schema_topic, "", found.table, 0, {})
        read = self._topic(spec, schema_topic, [found.table])
        return None if read is None else self._read_on(found, before, read)

    def _read_on(self, found: ColumnNumbers, before: StatementNumbers, read: TopicRead) -> OpenedColumns:
        if read.topic_id != before.topic_id:
            before = StatementNumbers(before.topic, read.topic_id, before.table, 0, {}, read.until)
        reported = self._reported.get(before.identity, 0)
        if before.columns and read.since > max(before.until, reported):
            _log.warning(
                "topic %s: statements from offset %d to %d are gone, so columns of table %s that they have dropped and "
                "added again are not noticed", before.topic, before.until, read.since, before.table,
            )  # fmt: skip
        changes = [each for each in read.tables.get(_database_and_table(before.table), ()) if each[0] >= before.until]
        columns, unread = numbers_after(before.columns, changes)
        for offset, why in unread:
            if offset >= reported:
                _log.warning(
                    "topic %s, offset %d: the columns of table %s keep their numbers by name, because the statement is "
                    "not understood: %s", before.topic, offset, before.table, why,
                )  # fmt: skip
        self._reported[before.identity] = max(reported, read.until)
        after = msgspec.structs.replace(before, until=read.until, columns=columns or first_numbers([*found.types]))
        return OpenedColumns(_numbered(found, after, after.columns), after)


def _numbered(found: ColumnNumbers, by: StatementNumbers, columns: Mapping[str, int]) -> ColumnNumbers:
    """The catalogue's columns with their numbers: a statement may be known there first, and its column has none yet."""
    folded = {name.lower(): number for name, number in columns.items()}
    numbers = {name: folded[name.lower()] for name in found.types if name.lower() in folded}
    return ColumnNumbers(by.identity, numbers, types=found.types)


def _database_and_table(identifier: str) -> tuple[str, str]:
    database, table = parse_identifier(identifier)
    return database, table


def source_spelling(spec: FeedSpec) -> str:
    """What the feed calls its source database; empty without one."""
    database = spec.source.database
    return "" if database is None else database.dsn or database.connection or ""
