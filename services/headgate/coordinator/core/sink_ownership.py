"""The feed that writes each table of a sink: no table may have two writers, under any name of its database."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from headgate.records.control import FeedRecorded, SpanPlan
from headgate.records.identifiers import normal_table
from headgate.records.slices import slice_of

SinkName = tuple[str, str | None]
"""Its type and address (or named connection), or ("id", its own identity)."""

Written = Mapping[SinkName, Mapping[str, tuple[str, ...]]]
"""Sink → one of ``written_names`` of a table → feeds that write it."""


def written_names(table: str) -> tuple[str, ...]:
    """The names under which it is known that a table, given in its one spelling, is written.

    A slice (records/slices.py) is written under a name without its letters' case, and under one that all slices of its
    table share. No table has a name with a zero in it.
    """
    part = slice_of(table)
    return (table,) if part is None else (_folded(table), _any_slice(part.table))


def _claimed_names(table: str) -> tuple[str, ...]:
    """Those of ``written_names`` under which another feed must not write if this one writes ``table``."""
    part = slice_of(table)
    return (table, _any_slice(table)) if part is None else (_folded(table), part.table)


def _folded(table: str) -> str:
    part = slice_of(table)
    return table if part is None else msgspec.structs.replace(part, value=part.value.casefold()).text


def _any_slice(table: str) -> str:
    return f"{table}\0"


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
) -> tuple[str, str, str] | None:
    """The first (feed, table, under what other address) of another feed that writes a table of ``plans`` there."""
    for place, how in ((sink_of(spec), ""), (("id", sink_id), ", under another address of the same database")):
        tables = {} if place is None else written.get(place, {})
        named = {normal_table(plan.table): plan.table for plan in plans}
        shared = sorted(
            (other, table)
            for key, table in named.items()
            for taken in _claimed_names(key)
            for other in tables.get(taken, ())
            if other != name
        )
        if shared:
            return (*shared[0], how)
    return None
