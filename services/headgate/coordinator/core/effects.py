"""Effects that the coordinator requests outside of its pure machine, and their results.

The service runs an effect after the commit of the decision that requested it, and returns ``EffectFinished(effect,
result)``. Effects are idempotent: a new owner requests every effect again whose result is not on the log.
"""

import msgspec

from headgate.records.control import Positions, SpanPlan
from headgate.runtime.machine import EffectFailed

__all__ = [
    "DiscoverTables",
    "FeedEffect",
    "FeedForgotten",
    "FeedRefused",
    "FeedResolved",
    "FeedResult",
    "ForgetFeed",
    "ResolveFeed",
    "ResolveStart",
    "StartResolved",
    "TablesDiscovered",
]


class ResolveFeed(msgspec.Struct, frozen=True):
    """Resolve a new or changed feed: topics, partitions and start offsets. Check the sink and its tables.

    ``spec`` is the feed's JSON as requested. ``known`` are the spans of a changed feed, as ``plans_today`` of
    records/stored_names.py has them: they keep their start offsets. ``before``: its JSON so far, empty for a new feed.
    Result: FeedResolved, FeedRefused, or EffectFailed to be requested again.
    """

    request: str
    feed: str
    spec: str
    known: tuple[SpanPlan, ...] = ()
    before: str = ""


class ResolveStart(msgspec.Struct, frozen=True):
    """Find the offsets to resume a stopped feed from: ``start`` as requested, ``spans`` as currently planned.

    ``spec`` is the feed's JSON as accepted: its format determines whether the feed can go back to a time.

    Result: StartResolved, FeedRefused (the log no longer has the position, or never had it), or EffectFailed to be
    requested again.
    """

    request: str
    feed: str
    start: str
    spans: tuple[SpanPlan, ...]
    spec: str


class DiscoverTables(msgspec.Struct, frozen=True):
    """Check whether the source of a running feed is unchanged: ``spec`` as accepted, ``spans`` as planned.

    Result: TablesDiscovered, FeedRefused (the check itself is impossible), or EffectFailed. The check is repeated in
    any case. ``is_last``: the feed is at its target, and ends unless there is something new. ``positions``: what the
    sink is certain to have, by partition, for a change log, to which it is reported. ``reached``: how far each table
    is as far as the owner knows (table → partition → next offset), to find out what is not applied.
    """

    feed: str
    feed_id: str
    spec: str
    spans: tuple[SpanPlan, ...]
    is_last: bool = False
    positions: Positions = {}
    reached: dict[str, Positions] = {}


class ForgetFeed(msgspec.Struct, frozen=True):
    """Remove what Headgate keeps in the sink for a feed whose spans are all sealed.

    Result: FeedForgotten, or EffectFailed to be requested again.
    """

    feed: str
    feed_id: str
    spec: str


class FeedResolved(msgspec.Struct, frozen=True):
    """The feed is possible: its spans with distinct names, and where they are written.

    ``spec`` is the feed's JSON as accepted. In it ``sink.dsn`` must be spelled the same for the same database: two
    feeds with equal ``sink.type`` and ``sink.dsn`` (or ``sink.connection``), or with equal ``sink_id``, may not share a
    table. ``target_ts`` is the spec's. Without ``spans`` the feed waits for its first table; ``note`` describes what it
    waits for. ``warnings``: what the feed's creator should know, a sentence each. ``missing``: tables that the sink
    does not have yet, and ``statements`` the SQL by which agents will create them. ``copies``: target table → which
    rows of its source are copied when it joins (records/row_copies.py).
    """

    spec: str
    spans: tuple[SpanPlan, ...]
    target_ts: int | None = None
    sink_id: str | None = None
    note: str = ""
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    statements: str = ""
    copies: dict[str, str] = {}


class TablesDiscovered(msgspec.Struct, frozen=True):
    """What a check has found: tables that join, each from its earliest change, and problems, a sentence each.

    ``grown`` names topics with more partitions than planned: order per key is lost. None if there are none.
    ``unapplied``: span → append time (ms) of its oldest unapplied change, for spans that make no progress (as in
    FeedProgressed); None if that could not be determined. ``added``: partitions that a change log has gained, as a part
    of its table; None if there are none. ``warnings``: what an operator should know about tables that join, a sentence
    each; they stay with the feed. ``complete``: spans that had applied everything when the check began, at
    ``looked_ms`` by the broker's clock. ``copies``: as of FeedResolved, of the tables that join.
    """

    joined: tuple[SpanPlan, ...] = ()
    notices: tuple[str, ...] = ()
    grown: str | None = None
    unapplied: dict[str, int] | None = None
    complete: tuple[str, ...] = ()
    looked_ms: int = 0
    warnings: tuple[str, ...] = ()
    added: SpanPlan | None = None
    copies: dict[str, str] = {}


class StartResolved(msgspec.Struct, frozen=True):
    """The plan with other start offsets, all of which can be read now."""

    spans: tuple[SpanPlan, ...]


class FeedRefused(msgspec.Struct, frozen=True):
    """The feed is not possible: what is wrong, where, and what to do. Nothing was changed."""

    reason: str


class FeedForgotten(msgspec.Struct, frozen=True):
    """The sink no longer holds anything of the feed, or the feed's description cannot be read to find its sink."""


FeedEffect = ResolveFeed | ResolveStart | DiscoverTables | ForgetFeed
FeedResult = FeedResolved | StartResolved | TablesDiscovered | FeedForgotten | FeedRefused | EffectFailed
