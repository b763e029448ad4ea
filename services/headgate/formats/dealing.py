"""Assigns the events of a topic with several tables to their tables before decoding.

    what came of a partition ──Dealer──▶ per table that the feed names: its events ──▶ that table's own decoder
                                   ├──▶ for all of them: what counts for the whole partition (TiCDC's watermarks)
                                   ├──▶ skipped and counted: events of tables that the feed does not name
                                   └──▶ unreadable: events that do not name their table

An event is inspected once for all tables; nothing but its table's name is built of it. The stage behind this, a decoder
per table, knows nothing of other tables, so an error in one table's event is that table's alone. An unreadable event
may be of any table: no table may move past it unless it has been set aside (docs/adr/0017).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any, Final, Literal

import msgspec

from headgate.formats.change import DATA_ERRORS, ChangeError, reason_of
from headgate.formats.tables import show_table
from headgate.records.identifiers import parse_identifier
from headgate.records.source_tables import SourceTable

__all__ = ["Dealer", "Dealt", "EventColumns", "Look", "Whose", "named"]


class Whose(Enum):
    """Whose an event is if it does not belong to a single table."""

    EVERYBODY = "everybody"
    NOBODY = "nobody"


EVERYBODY: Final = Whose.EVERYBODY
NOBODY: Final = Whose.NOBODY

Look = Callable[[bytes], SourceTable | Literal[Whose.EVERYBODY, Whose.NOBODY]]
"""The table of an event by its value: (schema or database, table). Raises ChangeError if it cannot be determined,
SchemasUnavailableError if it cannot be just now."""


def named(database: object, schema: object, table: object) -> SourceTable:
    """The name that a feed calls a table by. Raises ChangeError for an event that has none."""
    space = schema or database
    if not isinstance(space, str) or not isinstance(table, str) or not table:
        raise ChangeError(
            "the event does not name its table: a feed with source.tables needs events as the connector writes them"
        )
    return (space, table)


class EventColumns(msgspec.Struct, frozen=True):
    """Events in offset order, column by column, as sources.reader.Chunk has them."""

    offsets: Sequence[int] = ()
    appended_ms: Sequence[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()

    def within(self, start: int, end: int) -> "EventColumns":
        """Those at offsets from ``start`` to before ``end``."""
        if not self.offsets or (start <= self.offsets[0] and self.offsets[-1] < end):
            return self
        part = slice(bisect_left(self.offsets, start), bisect_left(self.offsets, end))
        return EventColumns(self.offsets[part], self.appended_ms[part], self.keys[part], self.values[part])


class Dealt(msgspec.Struct, frozen=True):
    """Events of one partition, dealt out. ``unreadable``: (offset, why), in order.

    ``passed_over`` counts events of tables that the feed does not name, ``passed_over_table`` is the last one's.
    """

    tables: Mapping[str, EventColumns]
    unreadable: Sequence[tuple[int, str]]
    passed_over: int
    passed_over_table: str | None


class Dealer:
    """Deals out the events of one topic. One per thread: ``look`` may remember schemas."""

    def __init__(self, look: Look, tables: Iterable[str]) -> None:
        """``tables`` as the feed names them: ``schema.table`` or ``database.table`` (records/identifiers.py)."""
        self._look = look
        self._names: dict[SourceTable, str] = {}
        for table in tables:
            self._names[parse_identifier(table)] = table

    def deal(self, columns: EventColumns) -> Dealt:
        """Raises SchemasUnavailableError: none of them can be dealt for now."""
        unreadable: list[tuple[int, str]] = []
        try:
            whose = [NOBODY if value is None else self._look(value) for value in columns.values]
        except DATA_ERRORS:
            whose = self._one_by_one(columns, unreadable)
        places: dict[Any, list[int]] = {}
        for place, each in enumerate(whose):
            try:
                places[each].append(place)
            except KeyError:
                places[each] = [place]
        places.pop(NOBODY, None)
        shared = places.pop(EVERYBODY, [])
        tables: dict[str, EventColumns] = {}
        for each, table in self._names.items():
            mine = places.pop(each, [])
            tables[table] = _picked(columns, sorted((*mine, *shared)) if shared else mine)
        passed_over = sum(map(len, places.values()))
        last = max(places, key=lambda each: places[each][-1], default=None)
        return Dealt(tables, unreadable, passed_over, None if last is None else show_table(last))

    def _one_by_one(self, columns: EventColumns, unreadable: list[tuple[int, str]]) -> list[Any]:
        whose: list[Any] = []
        for offset, value in zip(columns.offsets, columns.values, strict=True):
            try:
                whose.append(NOBODY if value is None else self._look(value))
            except DATA_ERRORS as error:
                whose.append(NOBODY)
                unreadable.append((offset, reason_of(error)))
        return whose


def _picked(columns: EventColumns, places: Sequence[int]) -> EventColumns:
    if len(places) == len(columns.offsets):
        return columns
    if len(places) < 2:  # itemgetter gives a single one without a tuple
        return EventColumns(*([column[place] for place in places] for column in msgspec.structs.astuple(columns)))
    pick = itemgetter(*places)
    return EventColumns(*(list(pick(column)) for column in msgspec.structs.astuple(columns)))
