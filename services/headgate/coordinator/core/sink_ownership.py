"""The feed that writes each table of a sink: no table may have two writers, under any name of its database."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from headgate.records.control import FeedRecorded, SpanPlan
from headgate.records.identifiers import normal_table

SinkName = tuple[str, str | None]
"""Its type and address (or named connection), or ("id", its own identity)."""

Written = Mapping[SinkName, Mapping[str, tuple[str, ...]]]
"""Sink → table, in its one spelling → feeds that write it."""


class _SinkPart(msgspec.Struct):
    type: str
    dsn: str = ""
    connection: str | None = None


class _SpecPart(msgspec.Struct):
    sink: _SinkPart


def sink_of(spec: str) -> tuple[str, str] | None:
    """Where a feed writes, as text that is equal for equal databases (effects.FeedResolved)."""
    try:
        part = msgspec.json.decode(spec, type=_SpecPart)
    except msgspec.MsgspecError:
        return None
    place = part.sink.dsn or (part.sink.connection and f"connection {part.sink.connection}")
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
            (other, table) for key, table in named.items() for other in tables.get(key, ()) if other != name
        )
        if shared:
            return (*shared[0], how)
    return None
