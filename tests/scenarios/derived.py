"""What a coordinator's indexes say, and the same found out anew from the records, span by span: the two must agree.

The indexes are kept up to date record by record, because no question may cost all spans. Here every question costs
all of them, and each answer is one line: what the index means.
"""

from collections import Counter
from typing import Any

from headgate.coordinator.core.index import Indexes
from headgate.coordinator.core.sink_ownership import sink_of
from headgate.coordinator.core.span_predicates import is_broken, is_failing, is_moving, is_open
from headgate.coordinator.core.state import CoordinatorState
from headgate.records.control import FeedRecorded, Liveness, ReplicationState, SpanDispatched, WantedState
from headgate.records.keys import SpanKey
from headgate.records.spans import table_of

__all__ = ["derived", "indexed"]

RUNNING = (ReplicationState.REPLICATING, ReplicationState.PREPARE)


def indexed(index: Indexes) -> dict[str, Any]:
    """What the indexes say, without what is empty. Not progress: what is counted of it depends on when it was said."""
    return {
        "needy": list(index.needy.in_order()),
        "closing": list(index.closing.in_order()),
        "outdated": list(index.outdated.in_order()),
        "live": list(index.live.in_order()),
        "stopping": list(index.stopping.in_order()),
        "namesakes": dict(sorted(index.namesakes.items())),
        "roles": {session: list(keys.in_order()) for session, keys in sorted(index.roles.items()) if keys},
        "words": {session: list(keys.in_order()) for session, keys in sorted(index.words.items())},
        "starting": {session: count for session, count in sorted(index.starting.items()) if count},
        "parts": {place: sorted(keys) for place, keys in sorted(index.parts.items())},
        "written": {
            place: {table: sorted(feeds) for table, feeds in sorted(tables.items())}
            for place, tables in sorted(index.written.items())
            if tables
        },
        "feeds": {
            name: (sorted(feed.plans), feed.open_count, feed.broken_count, feed.moving_count, feed.failing_count)
            for name, feed in sorted(index.feeds.items())
            if feed.plans or feed.open_count or feed.failing_count
        },
        "waiting": {name: list(feed.waiting.in_order()) for name, feed in sorted(index.feeds.items()) if feed.waiting},
        "erring": {name: list(feed.erring.in_order()) for name, feed in sorted(index.feeds.items()) if feed.erring},
    }


def derived(state: CoordinatorState) -> dict[str, Any]:
    """What they should say."""
    planned = [SpanKey(name, plan.span) for name, feed in state.feeds.items() for plan in feed.spans]
    keys = sorted({*state.spans, *planned})
    records = {key: state.spans.get(key) for key in keys}
    wanted = {key for key in planned if _is_to_run(state.feeds[key.feed], key.span)}
    live = sorted(session for session in state.agents if session not in state.ended)
    holders = [(key, role, record) for key, record in records.items() if record for role in _roles(record)]
    words = {(session, key) for said in (state.tasks, state.progress) for key, of in said.items() for session in of}
    abandoned = {name for name, feed in state.feeds.items() if feed.abandoned}
    return {
        "needy": [
            key for key in keys if _is_needy(records[key], is_wanted=key in wanted) and key.feed not in abandoned
        ],
        "closing": [
            key
            for key in keys
            if key.feed in state.feeds
            and key not in wanted
            and is_open(records[key])
            and (record := records[key]) is not None
            and record.state is not ReplicationState.REMOVING
        ],
        "outdated": [
            key
            for key in keys
            if key.feed in state.feeds and key not in planned and records[key] and not is_open(records[key])
        ],
        "live": live,
        "stopping": [session for session in live if state.agents[session].liveness is Liveness.STOPPING],
        "namesakes": {
            agent: {session for session in live if session[0] == agent}
            for agent in sorted({agent for agent, _ in live})
        },
        "roles": _grouped((session, key) for key, (session, _), _record in holders),
        "words": _grouped(words),
        "starting": dict(
            sorted(
                Counter(
                    session
                    for _, (session, name), record in holders
                    if name == "secondary" or (record.state is ReplicationState.COMMIT and record.secondary is None)
                ).items()
            )
        ),
        "parts": _grouped(
            ((key.feed, table_of(key.span)), key)
            for key in {*state.spans, *state.tasks}
            if table_of(key.span) != key.span
        ),
        "written": _written(state),
        "feeds": {
            name: _counts(state, name)
            for name in sorted({*state.feeds, *(key.feed for key in state.spans)})
            if any(_counts(state, name)[:3])
        },
        "waiting": _grouped(
            (key.feed, key) for key in wanted if (record := records[key]) is None or record.state not in RUNNING
        ),
        "erring": _grouped((key.feed, key) for key, record in state.spans.items() if _is_erring(state, key, record)),
    }


def _roles(record: SpanDispatched) -> list[tuple[tuple[str, str], str]]:
    roles = (("primary", record.primary), ("secondary", record.secondary))
    return [((role.agent, role.session), name) for name, role in roles if role is not None]


def _is_to_run(feed: FeedRecorded, span: str) -> bool:
    return feed.wanted is WantedState.RUNNING and table_of(span) not in {paused.table for paused in feed.paused}


def _is_needy(record: SpanDispatched | None, *, is_wanted: bool) -> bool:
    if record is None:
        return is_wanted
    is_free = record.primary is None and not record.failures
    return is_free and (
        record.state is ReplicationState.REMOVING or (record.state is ReplicationState.ABSENT and is_wanted)
    )


def _is_erring(state: CoordinatorState, key: SpanKey, record: SpanDispatched) -> bool:
    role = record.primary
    word = None if role is None else state.tasks.get(key, {}).get((role.agent, role.session))
    is_about_it = word is not None and role is not None and (word.epoch, word.feed_id) == (role.epoch, record.feed_id)
    return (
        record.state in RUNNING
        and is_about_it
        and word is not None
        and word.error_code not in (None, "copying", "maintaining")
    )


def _counts(state: CoordinatorState, name: str) -> tuple[list[str], int, int, int, int]:
    records = [record for key, record in state.spans.items() if key.feed == name]
    feed = state.feeds.get(name)
    plans = [] if feed is None else sorted(plan.span for plan in feed.spans)
    tests = (is_open, is_broken, is_moving, is_failing)
    counts = [sum(test(record) for record in records) for test in tests]
    return plans, counts[0], counts[1], counts[2], counts[3]


def _written(state: CoordinatorState) -> dict[Any, dict[str, list[str]]]:
    found: dict[Any, dict[str, set[str]]] = {}
    for name, feed in state.feeds.items():
        for place in _places(feed):
            for plan in feed.spans:
                found.setdefault(place, {}).setdefault(plan.table, set()).add(name)
    return {
        place: {table: sorted(feeds) for table, feeds in sorted(tables.items())}
        for place, tables in sorted(found.items())
    }


def _places(feed: FeedRecorded) -> list[tuple[str, str]]:
    address = sink_of(feed.spec)
    by_id = [] if feed.sink_id is None else [("id", feed.sink_id)]
    return by_id if address is None else [address, *by_id]


def _grouped(pairs: Any) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for group, member in sorted(set(pairs)):
        groups.setdefault(group, []).append(member)
    return groups
