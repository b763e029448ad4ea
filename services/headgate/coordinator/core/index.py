"""Indexes over the records, updated with every record, for the queries that ``decide`` makes at every event.

Per feed: which spans it plans, how many are open or broken, which are not replicating, and the merged positions. Over
all feeds: which spans need an agent, which need to be closed. Per session: its roles, those just starting, and the
spans it has reported on. All are derived from the records; none is ever written to the log.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from headgate.coordinator.core.ranking import Ranking
from headgate.coordinator.core.sink_ownership import SinkName, sink_names, written_names
from headgate.coordinator.core.span_predicates import (
    is_broken,
    is_failing,
    is_moving,
    is_open,
    is_starting,
    is_to_run,
    takes_agent,
)
from headgate.records.control import (
    AgentAnnounced,
    FeedRecorded,
    Liveness,
    Positions,
    ReplicationState,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
)
from headgate.records.identifiers import normal_table
from headgate.records.keys import SpanKey
from headgate.records.spans import overlap, table_of
from headgate.records.stored_names import plans_today

LAG_HOLDS_MS: Final = 10_000
"""A span whose last batch was older than this when it became visible is reported as holding the checkpoint (TiCDC's
documentation calls a lag below 10 s normal)."""


QUIET_SPANS_MAX: Final = 10_000
"""Largest feed, in spans, for which those that have applied everything are told apart: each second it costs a pass over
all of them."""


@dataclass(slots=True)
class FeedIndex:
    """What is derived for one feed."""

    plans: dict[str, SpanPlan] = field(default_factory=dict)
    open_count: int = 0
    broken_count: int = 0
    moving_count: int = 0
    failing_count: int = 0
    """Spans with failures that no progress has reset yet."""
    waiting: Ranking[SpanKey] = field(default_factory=Ranking)
    """Wanted spans that no agent replicates."""
    erring: Ranking[SpanKey] = field(default_factory=Ranking)
    """Spans that count as replicating, but whose agent reports an error."""
    positions: dict[str, Positions] = field(default_factory=dict)
    """By table, so that they continue when it is divided or made whole."""
    ts: Ranking[str] = field(default_factory=Ranking)
    """Span → resolved_ts, or seen_ts where none is claimed."""
    newest_ts: int | None = None
    """The greatest of them so far."""
    resolved: Ranking[str] = field(default_factory=Ranking)
    """Span → resolved_ts."""
    lagging: Ranking[str] = field(default_factory=Ranking)
    """Spans whose last batch was late, the one with the least ts first."""

    unapplied: Ranking[str] = field(default_factory=Ranking)
    """Spans that make no progress, the one whose oldest change has waited longest first; from the feed's checkpoint."""

    def forget_counts(self) -> None:
        """Forget all progress."""
        self.positions, self.ts, self.resolved, self.lagging = {}, Ranking(), Ranking(), Ranking()
        self.newest_ts = None

    def least_ts(self, complete: AbstractSet[str] = frozenset(), complete_ts: int = 0) -> int | None:
        """Least ts over the spans; None while one is missing.

        A span of ``complete`` had applied everything at ``complete_ts``. Nothing that others have seen until then is
        missing from it, so it does not hold them.
        """
        newest = self.newest_ts
        if newest is None or not complete or len(self.plans) > QUIET_SPANS_MAX:
            return self._least(self.ts)
        if any(span not in self.ts and span not in complete for span in self.plans):
            return None
        quiet_ts = min(complete_ts, newest)
        least = next((int(self.ts.rank(span)) for span in self.ts.in_order() if span not in complete), None)
        quiet = [max(self.ts.rank(span) or 0, quiet_ts) for span in complete if span in self.plans]
        return min(quiet if least is None else [*quiet, least], default=None)

    def least_resolved_ts(self) -> int | None:
        """Least resolved_ts over the spans; None while one is missing."""
        return self._least(self.resolved)

    def _least(self, ranking: Ranking[str]) -> int | None:
        first = ranking.first()
        if first is None or len(ranking) < len(self.plans):
            return None
        least: int = ranking.rank(first)
        return least

    def carry_over(self, before: Mapping[str, SpanPlan]) -> None:
        """Tables are divided differently: a new span has seen at least what each span before it had.

        It inherits the least of the spans that it has partitions of, and nothing if one of them has reported nothing.
        """
        gone, come = sorted(before.keys() - self.plans.keys()), sorted(self.plans.keys() - before.keys())
        for ranking in (self.ts, self.resolved):
            for span in come:
                told = [ranking.rank(old) for old in gone if overlap(old, span)]
                if told and None not in told:
                    ranking.put(span, min(told))
        for span in gone:
            for ranking in (self.ts, self.resolved, self.lagging):
                ranking.discard(span)


@dataclass(slots=True)
class Indexes:
    """What is derived from records; see the module's docstring."""

    feeds: dict[str, FeedIndex] = field(default_factory=dict)
    needy: Ranking[SpanKey] = field(default_factory=Ranking)
    """Spans that need an agent now: never dispatched, lost, released, or orphaned. Failed ones wait for a timer."""
    closing: Ranking[SpanKey] = field(default_factory=Ranking)
    """Open spans that must not run, and that no agent has been asked to close yet."""
    roles: dict[tuple[str, str], Ranking[SpanKey]] = field(default_factory=dict)
    starting: dict[tuple[str, str], int] = field(default_factory=dict)
    words: dict[tuple[str, str], Ranking[SpanKey]] = field(default_factory=dict)
    outdated: Ranking[SpanKey] = field(default_factory=Ranking)
    """Sealed spans that their feed no longer plans, because their table is divided differently."""
    parts: dict[tuple[str, str], set[SpanKey]] = field(default_factory=dict)
    """(feed, table) → the parts of the table that have any record or report."""
    live: Ranking[tuple[str, str]] = field(default_factory=Ranking)
    namesakes: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Live sessions by agent: more than one while a name is used twice, or after a restart."""
    stopping: Ranking[tuple[str, str]] = field(default_factory=Ranking)

    written: dict[SinkName, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """Sink → table → feeds that write it: one, or more where an older version allowed two. A sink is listed under its
    type and address, and under ("id", its own identity) if that is known."""

    def feed(self, name: str) -> FeedIndex:
        """The feed's index, made on first use."""
        found = self.feeds.get(name)
        if found is None:
            found = self.feeds[name] = FeedIndex()
        return found

    def span_changed(
        self, key: SpanKey, old: SpanDispatched | None, new: SpanDispatched | None, feed: FeedRecorded | None
    ) -> None:
        """A dispatch record replaced another."""
        index = self.feed(key.feed)
        index.open_count += is_open(new) - is_open(old)
        index.broken_count += is_broken(new) - is_broken(old)
        index.moving_count += is_moving(new) - is_moving(old)
        index.failing_count += is_failing(new) - is_failing(old)
        self._roles_changed(key, old, -1)
        self._roles_changed(key, new, +1)
        self._place(key, new, feed, index)

    def feed_changed(
        self, name: str, old: FeedRecorded | None, new: FeedRecorded | None, spans: Mapping[SpanKey, SpanDispatched]
    ) -> Iterable[SpanKey]:
        """A feed's record replaced another; the spans whose counts may have changed with it.

        Proportional to the feed's spans when the desired state changes, to those that come and go when a table is
        divided differently (apart from one pass over the plan), else free.
        """
        if (
            old is not None
            and new is not None
            and (old.wanted, old.abandoned, old.paused) == (new.wanted, new.abandoned, new.paused)
            and old.spans is new.spans
        ):
            return ()
        self._tables_changed(name, old, new)
        index = self.feed(name)
        before = index.plans
        index.plans = {plan.span: plan for plan in new.spans} if new is not None else {}
        is_same = (
            old is not None
            and new is not None
            and (old.feed_id, old.incarnation, old.wanted, old.abandoned)
            == (new.feed_id, new.incarnation, new.wanted, new.abandoned)
        )
        if old is None or new is None or (old.feed_id, old.incarnation) != (new.feed_id, new.incarnation):
            index.forget_counts()
        else:
            index.carry_over(before)
        changed = before.keys() ^ index.plans.keys() if is_same else before.keys() | index.plans.keys()
        changed |= _of_tables(index.plans, _paused_names(old) ^ _paused_names(new))
        keys = {SpanKey(name, span) for span in changed}
        for key in list(keys):
            # Records of spans that are no longer planned may have been read before the plan.
            if table_of(key.span) != key.span or (name, key.span) in self.parts:
                keys.update(other for other in self.overlapping(key) if other in spans)
        touched = sorted(keys)
        for key in touched:
            self._place(key, spans.get(key), new, index)
        return touched

    def _tables_changed(self, name: str, old: FeedRecorded | None, new: FeedRecorded | None) -> None:
        if (
            old is not None
            and new is not None
            and (old.spec, old.spans, old.sink_id) == (new.spec, new.spans, new.sink_id)
        ):
            return
        for place in sink_names(old):
            written = self.written[place]
            for table in _names_written(old):
                others = tuple(feed for feed in written.pop(table, ()) if feed != name)
                if others:
                    written[table] = others
        for place in sink_names(new):
            written, alone = self.written.setdefault(place, {}), (name,)
            for table in _names_written(new):
                others = written.get(table, ())
                written[table] = (*others, name) if others and name not in others else others or alone

    def session_changed(self, session: tuple[str, str], announced: AgentAnnounced | None, *, is_live: bool) -> None:
        """A session announced itself, left, or died."""
        namesakes = self.namesakes.setdefault(session[0], set())
        if is_live and announced is not None:
            self.live.put(session)
            namesakes.add(session)
        else:
            self.live.discard(session)
            namesakes.discard(session)
            if not namesakes:
                del self.namesakes[session[0]]
        if is_live and announced is not None and announced.liveness is Liveness.STOPPING:
            self.stopping.put(session)
        else:
            self.stopping.discard(session)

    def forget_session(self, session: tuple[str, str]) -> None:
        """Drop the session's empty entries: sessions come and go without limit."""
        if session in self.roles and not self.roles[session]:
            del self.roles[session]
            self.starting.pop(session, None)

    def word_heard(self, session: tuple[str, str], key: SpanKey) -> None:
        """The session has a task or progress key for the span."""
        words = self.words.get(session)
        if words is None:
            words = self.words[session] = Ranking()
        words.put(key)

    def word_forgotten(self, session: tuple[str, str], key: SpanKey) -> None:
        """The session has no key left for the span."""
        words = self.words.get(session)
        if words is not None:
            words.discard(key)
            if not words:
                del self.words[session]

    def count(self, key: SpanKey, positions: Positions, progress: SpanProgressed | None) -> None:
        """Merge what a primary has applied: per partition the greatest, never back."""
        index = self.feed(key.feed)
        if positions:
            merged = index.positions.setdefault(table_of(key.span), {})
            for partition, offset in positions.items():
                if offset > merged.get(partition, -1):
                    merged[partition] = offset
        if progress is None or key.span not in index.plans:
            return
        ts = progress.seen_ts if progress.resolved_ts is None else progress.resolved_ts
        known = index.ts.rank(key.span)
        if ts is not None and (known is None or ts > known):
            index.ts.put(key.span, ts)
            index.newest_ts = ts if index.newest_ts is None else max(index.newest_ts, ts)
            known = ts
        resolved, before = progress.resolved_ts, index.resolved.rank(key.span)
        if resolved is not None and (before is None or resolved > before):
            index.resolved.put(key.span, resolved)
        if progress.lag_ms >= LAG_HOLDS_MS:
            index.lagging.put(key.span, -1 if known is None else known)
        else:
            index.lagging.discard(key.span)

    def error_changed(self, key: SpanKey, *, is_erring: bool) -> None:
        """The span's record, or its primary's newest report, replaced another."""
        _mark(self.feed(key.feed).erring, key, is_erring)

    def unapplied_changed(self, feed: str, unapplied: Mapping[str, int]) -> None:
        """The feed's checkpoint replaced another."""
        ranking = self.feed(feed).unapplied
        for span in [span for span in ranking.in_order() if span not in unapplied]:
            ranking.discard(span)
        for span, append_ms in unapplied.items():
            ranking.put(span, append_ms)

    def part_changed(self, key: SpanKey, *, is_known: bool) -> None:
        """A record or report about the span came or went; ``is_known`` if there is one now."""
        table = table_of(key.span)
        if table == key.span:
            return
        place = (key.feed, table)
        if is_known:
            self.parts.setdefault(place, set()).add(key)
        elif place in self.parts:
            self.parts[place].discard(key)
            if not self.parts[place]:
                del self.parts[place]

    def overlapping(self, key: SpanKey) -> list[SpanKey]:
        """Other spans with a partition of this one that may have a record or report, sorted."""
        table = table_of(key.span)
        parts = self.parts.get((key.feed, table), ())
        if not parts and table == key.span:
            return []  # called for every span that is assigned, and nearly every one is a whole table
        found = sorted(other for other in parts if other != key and overlap(other.span, key.span))
        return found if table == key.span else [SpanKey(key.feed, table), *found]

    def _place(self, key: SpanKey, record: SpanDispatched | None, feed: FeedRecorded | None, index: FeedIndex) -> None:
        is_planned = key.span in index.plans
        is_wanted = feed is not None and is_to_run(feed, key.span) and is_planned
        state = ReplicationState.ABSENT if record is None else record.state
        has_failed = record is not None and record.failures > 0
        is_abandoned = feed is not None and feed.abandoned
        _mark(self.needy, key, takes_agent(record, is_wanted=is_wanted) and not has_failed and not is_abandoned)
        is_to_close = feed is not None and not is_wanted and is_open(record) and state is not ReplicationState.REMOVING
        _mark(self.closing, key, is_to_close)
        is_outdated = feed is not None and not is_planned and record is not None and not is_open(record)
        _mark(self.outdated, key, is_outdated)
        is_running = state in (ReplicationState.REPLICATING, ReplicationState.PREPARE)
        _mark(index.waiting, key, is_wanted and not is_running)

    def _roles_changed(self, key: SpanKey, record: SpanDispatched | None, by: int) -> None:
        if record is None:
            return
        for role in (record.primary, record.secondary):
            if role is None:
                continue
            session = (role.agent, role.session)
            roles = self.roles.get(session)
            if roles is None:
                roles = self.roles[session] = Ranking()
            if by > 0:
                roles.put(key)
            else:
                roles.discard(key)
            if is_starting(record, role):
                self.starting[session] = self.starting.get(session, 0) + by


def _names_written(feed: FeedRecorded | None) -> Iterator[str]:
    for plan in () if feed is None else plans_today(feed):
        yield from written_names(normal_table(plan.table))


def _paused_names(feed: FeedRecorded | None) -> frozenset[str]:
    return frozenset() if feed is None else frozenset(paused.table for paused in feed.paused)


def _of_tables(plans: Mapping[str, SpanPlan], tables: frozenset[str]) -> set[str]:
    """The spans of these tables; most feeds have no paused table, so nothing is searched for them."""
    return {span for span, plan in plans.items() if plan.table in tables} if tables else set()


def _mark(ranking: Ranking[SpanKey], key: SpanKey, wanted: bool) -> None:
    if wanted:
        ranking.put(key)
    else:
        ranking.discard(key)
