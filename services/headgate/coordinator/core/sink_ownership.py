"""The feed that writes each table of a sink: no table may have two writers, under any name of its database."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from headgate.records.control import FeedRecorded, SpanPlan
from headgate.records.identifiers import namesake, normal_table
from headgate.records.slices import slice_of, whole_table

SinkName = tuple[str, str | None]
"""Its type and address (or named connection), or ("id", its own identity)."""

Written = Mapping[SinkName, Mapping[str, tuple[str, ...]]]
"""Sink → one of ``written_names`` of a table → feeds that write it."""


_HIDDEN: Final = "\0"
"""No table has a name with a zero in it."""


class SharedRows(msgspec.Struct, frozen=True):
    """Rows that another feed writes already, or could not keep apart from ours.

    ``how``: under what other address. ``columns``: our discriminator and the other feed's, where they differ.
    """

    feed: str
    table: str
    how: str
    columns: tuple[str, str] | None = None

    def reason(self, mine: str) -> str:
        """Why feed ``mine`` cannot have the table."""
        if self.columns is None:
            return f"table {self.table} is already written by feed {self.feed!r}{self.how}: a table has one writer"
        ours, theirs = self.columns
        return (
            f"feeds {mine!r} and {self.feed!r} write rows of table {whole_table(self.table)}{self.how}, by different "
            f"discriminators: {ours} and {theirs}. Nothing would keep their rows apart: use the same column in both "
            "(`into` in `tables`)"
        )


def written_names(table: str) -> tuple[str, ...]:
    """The names under which it is known that a table, given in its one spelling, is written.

    A slice (records/slices.py) is written under a name without its letters' case, and under names that all slices of
    its table share, and all by the same column.
    """
    part = slice_of(table)
    return (table,) if part is None else (_folded(table), _any_slice(part.table), _by_column(part.table, part.column))


def _claimed_names(table: str) -> tuple[str, ...]:
    """Those of ``written_names`` under which another feed must not write if this one writes ``table``."""
    part, other = slice_of(table), namesake(table)
    names = (table, _any_slice(table)) if part is None else (_folded(table), part.table)
    return names if other is None else (*names, _folded(other))


def _folded(table: str) -> str:
    part = slice_of(table)
    return table if part is None else msgspec.structs.replace(part, value=part.value.casefold()).text


def _any_slice(table: str) -> str:
    return f"{table}{_HIDDEN}"


def _by_column(table: str, column: str) -> str:
    return f"{table}{_HIDDEN}{column}"


class _StorePart(msgspec.Struct):
    endpoint: str | None = None


class _SinkPart(msgspec.Struct):
    type: str
    dsn: str = ""
    connection: str | None = None
    store: _StorePart = msgspec.field(default_factory=_StorePart)


class _SpecPart(msgspec.Struct):
    sink: _SinkPart


def sink_of(spec: str) -> tuple[str, str] | None:
    """Where a feed writes, as text that is equal for equal databases (effects.FeedResolved)."""
    try:
        part = msgspec.json.decode(spec, type=_SpecPart)
    except msgspec.MsgspecError:
        return None
    place = part.sink.dsn or (part.sink.connection and f"connection {part.sink.connection}")
    if place and part.sink.store.endpoint is not None:  # servers have buckets of the same name
        place = f"{place} at {part.sink.store.endpoint}"
    return (part.sink.type, place) if place else None


def sink_names(feed: FeedRecorded | None) -> Iterator[SinkName]:
    """The names under which a feed's sink is known: type and address, and its own identity where that was found."""
    if feed is None:
        return
    address = sink_of(feed.spec)
    if address is not None:
        yield address
    if feed.sink_id is not None:
        yield "id", feed.sink_id


def written_by_others(
    written: Written, name: str, spec: str, sink_id: str | None, plans: Iterable[SpanPlan]
) -> SharedRows | None:
    """The first table of ``plans`` that another feed than ``name`` writes there; None if each is free."""
    named = {normal_table(plan.table): plan.table for plan in plans}
    for place, how in ((sink_of(spec), ""), (("id", sink_id), ", under another address of the same database")):
        tables = {} if place is None else written.get(place, {})
        shared = sorted(
            (other, table)
            for key, table in named.items()
            for taken in _claimed_names(key)
            for other in tables.get(taken, ())
            if other != name
        )
        if shared:
            return SharedRows(*shared[0], how)
        unlike = next(filter(None, (_unlike(tables, name, key) for key in sorted(named))), None)
        if unlike is not None:
            other, table, columns = unlike
            return SharedRows(other, named[table], how, columns)
    return None


def _unlike(tables: Mapping[str, tuple[str, ...]], name: str, table: str) -> tuple[str, str, tuple[str, str]] | None:
    """The first other feed that writes slices of the same table by another column: it, ``table``, and both columns."""
    part = slice_of(table)
    if part is None:
        return None
    alike = {name, *tables.get(_by_column(part.table, part.column), ())}
    others = sorted(feed for feed in tables.get(_any_slice(part.table), ()) if feed not in alike)
    if not others:
        return None
    prefix = _any_slice(part.table)
    theirs = min(
        key.removeprefix(prefix)
        for key, feeds in tables.items()
        if key.startswith(prefix) and key != prefix and others[0] in feeds
    )
    return others[0], table, (part.column, theirs)
