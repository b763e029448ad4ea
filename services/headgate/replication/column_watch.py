"""Checks regularly whether a source has given the names of columns to other columns, while their tables replicate.

No change shows that: a column that was dropped and added again, two that swap their names, or one that gets the name of
a dropped one. Nor does a change of a column's type, which may change its values. The sink would keep the former values
in rows that do not change again. A claim compares the numbers and types of columns (docs/adr/0115). A table that stays
at its agent is compared here.
"""

import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Final

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import SentBack
from headgate.agent.core.span.states import Span
from headgate.config.feed import FeedSpec
from headgate.records.name_lists import shown_names
from headgate.replication.feed_parts import feed_of
from headgate.replication.source_columns import SOURCE_PAUSE_SECONDS, OpenedColumns
from headgate.replication.span_table import SpanTable
from headgate.replication.topic_watch import OPEN
from headgate.sinks.known_columns import ColumnNumbers
from headgate.sources.offsets import SourceError
from headgate.sources.table_options import spec_of
from headgate.tables.evolution import shaped_numbers

__all__ = ["COLUMNS_SECONDS", "ColumnWatch"]

COLUMNS_SECONDS: Final = 60.0
"""Between two checks: each is one session and one query per source database. Rows of the sink may have values of the
former column until then."""

_log = logging.getLogger(__name__)

Now = Callable[[FeedSpec, Mapping[SpanId, OpenedColumns]], Mapping[SpanId, ColumnNumbers]]
"""A feed, and tables of its source as they were opened → their columns now. Raises SourceError."""


class ColumnWatch:
    """For all spans of an executor; ``look`` is the pool's, all else the control thread's."""

    def __init__(
        self,
        table: SpanTable,
        opened: MutableMapping[SpanId, OpenedColumns],
        read: Now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``opened``: the columns of each span when it was opened; others are not watched."""
        self._table, self._opened, self._read, self._clock = table, opened, read, clock
        self._looked_at = clock()
        self._is_looking = False
        self._asked_again: dict[str, float] = {}
        """When a source that did not answer is asked again (monotonic seconds)."""

    def is_due(self, now: float) -> bool:
        """Whether a check is due, which then counts as started. None is while one runs: a source may be slow."""
        if self._is_looking or now - self._looked_at < COLUMNS_SECONDS:
            return False
        self._looked_at = now
        for span in [*self._opened]:
            if self._table.get(span) is None:  # it has left the agent
                self._opened.pop(span, None)
        self._is_looking = bool(self._watched())
        return self._is_looking

    def _watched(self) -> list[tuple[Span, OpenedColumns]]:
        return [
            (span, columns)
            for span in self._table.all()
            if span.phase in OPEN
            and (columns := self._opened.get(span.id)) is not None
            and feed_of(span.task.spec).evolves_tables
        ]

    def look(self) -> None:
        """Send spans back whose columns are others under the same names. Their next claim decides what to do."""
        try:
            self._look()
        finally:
            self._is_looking = False

    def _look(self) -> None:
        by_source: dict[str, list[tuple[Span, OpenedColumns]]] = {}
        for span, columns in self._watched():
            source = feed_of(span.task.spec).source
            if source.database is not None:
                place = source.model_dump_json(include={"database", "registry"})
                by_source.setdefault(place, []).append((span, columns))
        for place, watched in by_source.items():
            if self._clock() < self._asked_again.get(place, 0.0):
                continue
            try:
                opened = {span.id: columns for span, columns in watched}
                found = self._read(feed_of(watched[0][0].task.spec), opened)
            except SourceError as error:
                self._asked_again[place] = self._clock() + SOURCE_PAUSE_SECONDS
                _log.info("looking for columns that were replaced: %s", error)
                continue
            for span, columns in watched:
                if span.id in found:
                    self._compare(span, columns.numbers, found[span.id])

    def _compare(self, span: Span, before: ColumnNumbers, found: ColumnNumbers) -> None:
        now = shaped_numbers(found, spec_of(feed_of(span.task.spec), span.task.plan).columns)
        others = [name for name, number in before.columns.items() if now.columns.get(name, number) != number]
        retyped = [name for name, type_ in before.types.items() if now.types.get(name, type_) != type_]
        if not (others or retyped):
            return
        with self._table.changed:
            present = self._table.get(span.id)
            if present is not None and present.life == span.life and present.phase in OPEN:
                changed = "is another one" if others else "has another type"
                why = f"column {shown_names(others or retyped)} {changed} at the source by now"
                self._table.apply(span.id, SentBack(why), span.life)
