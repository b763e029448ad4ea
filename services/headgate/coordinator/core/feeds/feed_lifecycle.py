"""A feed's states and its record, from an operator's request until it is fulfilled (see requests.py).

    create ──accepted──ResolveFeed──▶ recorded (running) ◀──resume── stopped
                                        │  └──────pause──accepted──▶ every span sealed ──▶ stopped ──update──▶ stopped
                                        │  └──target reached──▶ every span sealed ──▶ finished
                                        └──remove──accepted──▶ every span sealed ──ForgetFeed──▶ keys deleted

``wanted`` is the desired state, ``state`` the current one. A feed is ``stopped`` only when each of its spans is
sealed or was never dispatched. ``warning`` means that a table has failed and does not replicate again yet, or that the
agent which runs it reports an error and retries; the other tables continue.
``failed`` means that such tables made no progress for half an hour. Only those that the sink's state keeps from being
written are still tried (docs/error-codes.md).
A feed with a target_ts ends by itself. Once there is evidence for each of its tables that every change up to the target
is at the sink, and a later check of the source has found no other table, the owner sets ``wanted`` to ``finished``. The
feed is finished when every span is sealed.
"""

from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.effects import (
    DiscoverTables,
    FeedForgotten,
    ForgetFeed,
    ResolveFeed,
    ResolveStart,
)
from headgate.coordinator.core.feeds import acceptance, checkpoint, discovery
from headgate.coordinator.core.outcomes import change_wish
from headgate.coordinator.core.span_predicates import is_broken, is_erring
from headgate.coordinator.core.spans import abandoning, span_lifecycle
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    OutcomeStatus,
    TaskReported,
    WantedState,
)
from headgate.records.error_codes import PARTITIONS_GROWN
from headgate.records.keys import FeedKey, FeedProgressKey, SpanKey
from headgate.runtime.machine import EffectFailed

__all__ = [
    "conclude",
    "delete_piece",
    "finish_effect",
    "give_up",
    "note_report",
    "retry_forget",
    "settle_feed",
    "spans_of",
]

STUCK_SECONDS_MAX: Final = 1800.0
"""Longest time that broken tables are retried without progress of any of them (TiCDC's
changefeed-error-stuck-duration): after that only a person can help, and the feed must show it."""

DELETES_PER_DECISION_MAX: Final = 1_000
"""Spans whose keys are deleted in one decision, each with those of a few dead sessions: the transaction of a turn stays
below TURN_FACTS_MAX (runtime/term.py), and the turn far below a lease."""

WAITING_SEARCHED_MAX: Final = 1_000
"""Spans without a writer that are searched for one that has failed: most of them have, or the feed is only starting."""


_FORGOTTEN: Final = "removed: the sink holds nothing of Headgate's for it any more"


def finish_effect(draft: CoordinatorDraft, effect: Any, result: Any) -> None:
    """Handle the service's result of an effect."""
    match effect, result:
        case ((ResolveFeed() | ResolveStart()), _):
            acceptance.finish(draft, effect, result)
        case DiscoverTables(), _:
            discovery.finish(draft, effect, result)
            if draft.term.last_looks.get(effect.feed):
                conclude(draft, effect.feed, draft.state.index.feed(effect.feed).least_resolved_ts())
        case ForgetFeed(), EffectFailed():
            draft.set_timer("forget", effect.feed, acceptance.EFFECT_RETRY_SECONDS)
        case ForgetFeed(), FeedForgotten():
            _delete(draft, effect)
        case _:
            raise TypeError(f"{type(result).__name__} is not an answer to {type(effect).__name__}")


def retry_forget(draft: CoordinatorDraft, name: str) -> None:
    """Request the clean-up of a feed again; the sink did not answer."""
    draft.term.forgetting.discard(name)
    draft.feeds_touched.add(name)


def note_report(draft: CoordinatorDraft, name: str, report: Any) -> None:
    """An agent's report about a table of the feed: an error begins or may be over, so the feed's state is settled."""
    feed = draft.feed(name)
    is_warned = feed is not None and feed.state is FeedState.WARNING
    if is_warned or (isinstance(report, TaskReported) and report.error_code is not None):
        draft.feeds_touched.add(name)


def settle_feed(draft: CoordinatorDraft, name: str) -> None:
    """Bring a feed's state in line with its spans, and settle the request that waits for it."""
    feed = draft.feed(name)
    if feed is not None and feed.abandoned:
        _settle_abandoned(draft, name, feed)
    elif feed is not None:
        _settle(draft, name, feed)


def _settle(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> None:
    discovery.watch(draft, name, feed)
    open_count, broken_count = draft.count_spans(name)
    if feed.wanted is not WantedState.RUNNING:
        draft.cancel_timer("stuck", name)
    if feed.wanted is not WantedState.RUNNING and not open_count:
        if feed.wanted is WantedState.STOPPED:
            _end(draft, name, feed, FeedState.STOPPED)
            if feed.state is not FeedState.STOPPED:
                draft.settle(feed.request, OutcomeStatus.DONE, "stopped: every table is sealed at the sink")
        elif feed.wanted is WantedState.FINISHED:
            _end(draft, name, feed, FeedState.FINISHED)
        elif name not in draft.term.forgetting:
            draft.term.forgetting.add(name)
            draft.add_effect(ForgetFeed(name, feed.feed_id, feed.spec))
        return
    if not draft.failing_count(name):
        draft.cancel_timer("stuck", name)
    is_broken_now = broken_count > 0
    is_stalled = draft.failing_count(name) > 0 and bool(draft.state.index.feed(name).unapplied)
    if not is_broken_now and not is_stalled and draft.first_erring(name) is None:
        _change(draft, name, feed, FeedState.NORMAL)
    elif feed.state is not FeedState.FAILED:
        if is_broken_now and feed.wanted is WantedState.RUNNING and not draft.has_timer("stuck", name):
            draft.set_timer("stuck", name, STUCK_SECONDS_MAX)
        _change(draft, name, feed, FeedState.WARNING)


def _settle_abandoned(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> None:
    for kind in ("discover", "stuck", "forget"):
        draft.cancel_timer(kind, name)
    if abandoning.is_over(draft, name, feed):
        draft.cancel_timer("abandon", name)
        delete_piece(draft, name)
    elif not draft.has_timer("abandon", name):
        draft.set_timer("abandon", name, abandoning.LOOK_SECONDS)


def conclude(draft: CoordinatorDraft, name: str, resolved_ts: int | None) -> None:
    """All tables of the feed are complete up to ``resolved_ts``: if that is its target, the feed finishes.

    Unless there are other tables by now: one that has come since the last check may have changes before the target.
    """
    feed = draft.feed(name)
    if feed is None or feed.wanted is not WantedState.RUNNING or feed.target_ts is None or resolved_ts is None:
        return
    if resolved_ts >= feed.target_ts and discovery.has_all(draft, name):
        change_wish(draft, name, feed, WantedState.FINISHED, None)


def give_up(draft: CoordinatorDraft, name: str) -> None:
    """Mark the feed as failed: it has had broken tables for too long, none of which has written anything.

    They are no longer retried, except for those that only the sink's state keeps from being written
    (span_lifecycle.is_given_up). Its other tables continue. A table that is just being tried may still heal the feed;
    otherwise an operator's resume does.
    """
    feed = draft.feed(name)
    if feed is None or feed.wanted is not WantedState.RUNNING or not draft.count_spans(name)[1]:
        return
    changed = replace(
        feed,
        owner_rev=draft.term.owner_rev,
        state=FeedState.FAILED,
        error=f"no progress for {STUCK_SECONDS_MAX / 60:.0f} min: {feed.error or 'see why'}",
        changed_ms=draft.now.wall_ms,
    )
    draft.put(FeedKey(name), changed)
    for key in spans_of(feed, name):
        record = draft.span(key)
        if record is not None and span_lifecycle.is_given_up(draft, key, record):
            draft.cancel_timer("retry", key)
            draft.term.retry_due.discard(key)


def _end(draft: CoordinatorDraft, name: str, feed: FeedRecorded, state: FeedState) -> None:
    """Every span is sealed. Write the last positions, too: the next owner ignores the reports of those who sealed."""
    if feed.state is not state:
        checkpoint.write(draft, name)
    _change(draft, name, feed, state)


def _change(draft: CoordinatorDraft, name: str, feed: FeedRecorded, state: FeedState) -> None:
    if feed.state is state and (state is not FeedState.WARNING or _is_in_trouble(draft, name, feed.error)):
        return
    first = _first_error(draft, name) if state is FeedState.WARNING else None
    if feed.state is state and first is None:
        return
    code, _, text = (first or "unknown: see why").partition(": ") if state is FeedState.WARNING else ("", "", "")
    if feed.error_code == PARTITIONS_GROWN and feed.wanted is not WantedState.RUNNING:
        code, text = feed.error_code, feed.error or ""  # stays, whatever its tables do on the way
    changed = replace(
        feed,
        owner_rev=draft.term.owner_rev,
        state=state,
        error_code=code or None,
        error=text or None,
        changed_ms=draft.now.wall_ms,
    )
    if replace(changed, owner_rev=feed.owner_rev, changed_ms=feed.changed_ms) != feed:
        draft.put(FeedKey(name), changed)


def _is_in_trouble(draft: CoordinatorDraft, name: str, error: str | None) -> bool:
    """Whether the span that ``error`` names (``<span>: <code>: <text>``) still fails."""
    key = SpanKey(name, (error or "").partition(": ")[0])
    record = draft.span(key)
    return is_broken(record) or is_erring(record, draft.state.word_of_primary(key, record))


def _first_error(draft: CoordinatorDraft, name: str) -> str | None:
    """``<code>: <span>: <code>: <text>`` of a span that fails now; None if none is found."""
    waiting = islice(draft.state.index.feed(name).waiting.in_order(), WAITING_SEARCHED_MAX)
    for key in (*sorted(draft.spans_touched.get(name, ())), *waiting):
        record = draft.span(key)
        if record is not None and is_broken(record):
            return _with_span(key, record.last_error)
    erring = draft.first_erring(name)
    word = None if erring is None else draft.state.word_of_primary(erring, draft.span(erring))
    if erring is None or word is None:
        return None
    return _with_span(erring, f"{word.error_code}: {word.error}")


def _with_span(key: SpanKey, error: str | None) -> str:
    return f"{(error or 'unknown').partition(': ')[0]}: {key.span}: {error}"


def spans_of(feed: FeedRecorded, name: str) -> list[SpanKey]:
    """The spans that the feed plans."""
    return [SpanKey(name, plan.span) for plan in feed.spans]


# --- the end --------------------------------------------------------------------------------------------------


def _delete(draft: CoordinatorDraft, effect: ForgetFeed) -> None:
    """The sink no longer holds anything of the feed: delete its keys from the log, piece by piece."""
    feed = draft.feed(effect.feed)
    if feed is None or feed.feed_id != effect.feed_id or feed.wanted is not WantedState.REMOVED:
        draft.term.forgetting.discard(effect.feed)
        return
    delete_piece(draft, effect.feed)


def delete_piece(draft: CoordinatorDraft, name: str) -> None:
    """Delete the next keys of the feed that belong to the owner: dispatch, reports of dead sessions, last the feed's.

    Live sessions delete their own reports. If the owner changes between two pieces, the new one finds a feed that must
    be removed and whose spans are closed or gone: it has the sink forget the feed again, and continues.
    """
    state, feed = draft.state, draft.feed(name)
    if feed is None or feed.wanted is not WantedState.REMOVED:
        draft.term.forgetting.discard(name)
        return
    told = abandoning.outcome_of(draft, name, feed) if feed.abandoned else _FORGOTTEN
    # A table that was being divided differently may have spans that are no longer planned.
    left = [key for key in abandoning.known_spans(draft, name, feed) if key in state.spans]
    for key in left[:DELETES_PER_DECISION_MAX]:
        draft.forget_span(key)
    if len(left) > DELETES_PER_DECISION_MAX:
        draft.set_timer("delete", name, 0.0)
        return
    draft.term.forgetting.discard(name)
    if name in state.feed_progress:
        draft.put(FeedProgressKey(name), None)
    draft.put(FeedKey(name), None)
    draft.settle(feed.request, OutcomeStatus.DONE, told)
