"""What the views answer, as one table: of it the pages are made, and the OpenAPI description of them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headgate import __version__
from headgate.config.wording import known_names
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedRecorded
from headgate.records.keys import FeedKey
from headgate.records.migration import MigrationKey, MigrationRecorded
from headgate.views.history import TIMELINE_EVENTS_MAX, History, HistoryEvent
from headgate.views.migration_rows import MigrationRow, migration_row, migration_rows
from headgate.views.rows import (
    AgentRow,
    FeedRow,
    FeedShown,
    LagPoint,
    OwnerRow,
    TableRow,
    agent_rows,
    feed_rows,
    feed_shown,
    owner_rows,
    table_rows,
)

TIMELINE_EVENTS_DEFAULT: Final = 100


class BadQueryError(ValueError):
    """A query that cannot be answered; the message names what can be asked."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error: ``name`` is stable, ``message`` is for people."""

    name: str
    message: str


class ViewContext(msgspec.Struct, frozen=True, kw_only=True):
    """What answers are made from. ``lag`` gives the windows of a feed's table."""

    snapshot: Snapshot
    history: History
    shards: int
    lag: Callable[[str, str], list[LagPoint]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One path. ``answer`` is given what is known, the path's parts and the query; None means that it was not found.

    ``query``: name → what it means.
    """

    path: str
    summary: str
    kind: Any
    answer: Callable[[ViewContext, Mapping[str, str], Mapping[str, str]], Any]
    query: Mapping[str, str] = {}


def _tables(known: ViewContext, _path: Mapping[str, str], query: Mapping[str, str]) -> list[TableRow] | None:
    feeds = [key.feed for key, _ in known.snapshot.each(FeedKey, FeedRecorded)]
    wanted = query.get("feed")
    if wanted is not None and wanted not in feeds:
        return None
    return [row for feed in feeds if wanted in (None, feed) for row in table_rows(known.snapshot, feed)]


def _lag(known: ViewContext, path: Mapping[str, str], _query: Mapping[str, str]) -> list[LagPoint] | None:
    return known.lag(path["feed"], path["table"]) or None


def _timeline(known: ViewContext, _path: Mapping[str, str], query: Mapping[str, str]) -> list[HistoryEvent]:
    limit = _number(query, "limit", TIMELINE_EVENTS_DEFAULT, TIMELINE_EVENTS_MAX)
    since_ms = _number(query, "since_ms", 0, 2**63)
    return [event for event in known.history.timeline() if event.at_ms >= since_ms][-limit:]


def _shard(known: ViewContext, path: Mapping[str, str], _query: Mapping[str, str]) -> list[HistoryEvent] | None:
    text = path["shard"]
    return known.history.shard(int(text)) or None if text.isascii() and text.isdigit() else None


def _number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 0 <= int(text) <= most:
        raise BadQueryError(f"{name}={text!r} is not allowed: write a whole number from 0 to {most}")
    return int(text)


ROUTES: Final = (
    Route(
        path="/v1/feeds",
        summary="all feeds, as `headgate feed list`",
        kind=list[FeedRow],
        answer=lambda known, _path, _query: feed_rows(known.snapshot),
    ),
    Route(
        path="/v1/feeds/{feed}",
        summary="one feed with its spans, as `headgate feed show`",
        kind=FeedShown,
        answer=lambda known, path, _query: feed_shown(known.snapshot, path["feed"]),
    ),
    Route(
        path="/v1/feeds/{feed}/history",
        summary="the history of a feed",
        kind=list[HistoryEvent],
        answer=lambda known, path, _query: known.history.feed(path["feed"]) or None,
    ),
    Route(
        path="/v1/tables",
        summary="all spans (tables, or parts of them), as `headgate table list`",
        kind=list[TableRow],
        answer=_tables,
        query={"feed": "only this feed's"},
    ),
    Route(
        path="/v1/feeds/{feed}/spans/{span}/history",
        summary="the agents that have run a span, its moves and failures",
        kind=list[HistoryEvent],
        answer=lambda known, path, _query: known.history.span(path["feed"], path["span"]) or None,
    ),
    Route(
        path="/v1/feeds/{feed}/tables/{table}/lag",
        summary="lag and rows of a table over time, all of its parts together",
        kind=list[LagPoint],
        answer=_lag,
    ),
    Route(
        path="/v1/agents",
        summary="all sessions of agents, dead ones too, as `headgate agent list --dead`",
        kind=list[AgentRow],
        answer=lambda known, _path, _query: agent_rows(known.snapshot),
    ),
    Route(
        path="/v1/agents/{agent}/history",
        summary="an agent's sessions, and the spans that were assigned to it and taken away",
        kind=list[HistoryEvent],
        answer=lambda known, path, _query: known.history.agent(path["agent"]) or None,
    ),
    Route(
        path="/v1/migrations",
        summary="all schema changes, as `headgate migration list`",
        kind=list[MigrationRow],
        answer=lambda known, _path, _query: migration_rows(known.snapshot, wall_ms()),
    ),
    Route(
        path="/v1/migrations/{migration}",
        summary="one schema change, as `headgate migration show`",
        kind=MigrationRow,
        answer=lambda known, path, _query: migration_row(known.snapshot, path["migration"], wall_ms()),
    ),
    Route(
        path="/v1/owners",
        summary="the owner and the standbys of each shard, as in `headgate coordinator list`",
        kind=list[OwnerRow],
        answer=lambda known, _path, _query: owner_rows(known.snapshot, known.shards, wall_ms()),
    ),
    Route(
        path="/v1/owners/{shard}/history",
        summary="the past owners of a shard",
        kind=list[HistoryEvent],
        answer=_shard,
    ),
    Route(
        path="/v1/timeline",
        summary="moves and failovers of the whole cluster, oldest first",
        kind=list[HistoryEvent],
        answer=_timeline,
        query={
            "limit": f"the newest so many [{TIMELINE_EVENTS_DEFAULT}]",
            "since_ms": "only those since then, milliseconds since 1970 [all]",
        },
    ),
)


def answer_to(route: Route, known: ViewContext, path: Mapping[str, str], query: Mapping[str, str]) -> Any:
    """The answer as plain values, None if it was not found. Raises BadQueryError."""
    unknown = sorted(set(query) - set(route.query))
    if unknown:
        allowed = ", ".join(route.query) or "none"
        raise BadQueryError(f"{unknown[0]} is not a parameter of {route.path}; its parameters are: {allowed}")
    found = route.answer(known, path, query)
    return None if found is None else msgspec.to_builtins(found)


def why_not_found(known: ViewContext, path: Mapping[str, str], query: Mapping[str, str]) -> str:
    """Which feed, agent or migration does not exist, with the nearest name; or that nothing is recorded."""
    snapshot = known.snapshot
    names = {
        "feed": [key.feed for key, _ in snapshot.each(FeedKey, FeedRecorded)],
        "agent": list(dict.fromkeys(row.agent for row in agent_rows(snapshot))),
        "migration": [key.migration for key, _ in snapshot.each(MigrationKey, MigrationRecorded)],
    }
    for kind, existing in names.items():
        given = path.get(kind, query.get(kind))
        if given is not None and given not in existing:
            there = known_names(given, sorted(existing)) if existing else "There are none yet"
            return f"{kind} {given!r} does not exist. {there}"
    return f"the topics hold nothing for {', '.join(f'{kind} {name}' for kind, name in path.items())}"


def openapi() -> dict[str, Any]:
    """The description of all this, OpenAPI 3.1."""
    kinds = [*(route.kind for route in ROUTES), Failure]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    failed: dict[str, Any] = {
        status: {"description": meaning, "content": {"application/json": {"schema": schemas[-1]}}}
        for status, meaning in (
            ("400", "an unknown parameter, or a value that is not allowed"),
            ("404", "an unknown path; not found, or the topics do not hold it any more"),
            ("503", "the topics are still being read"),
        )
    }
    paths: dict[str, Any] = {
        route.path: {
            "get": {
                "summary": route.summary,
                "parameters": _parameters(route),
                "responses": {
                    "200": {"description": route.summary, "content": {"application/json": {"schema": schema}}},
                    **failed,
                },
            }
        }
        for route, schema in zip(ROUTES, schemas, strict=False)
    }
    about = {
        "title": "Headgate views",
        "version": __version__,
        "description": "The state on Headgate's control topics and its history. Rebuilt from the topics at each start, "
        "so a history starts with what compaction has left.",
    }
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": {"schemas": components}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    parts = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [
        *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parts),
        *(
            {"name": name, "in": "query", "required": False, "description": meaning, "schema": {"type": "string"}}
            for name, meaning in route.query.items()
        ),
    ]
