"""The coordinator's draft: the state of spans, feeds and sessions, with everything decided so far."""

from typing import Any

from headgate.coordinator.core.span_predicates import (
    is_broken,
    is_erring,
    is_failing,
    is_moving,
    is_open,
    is_starting,
    is_to_run,
    takes_agent,
)
from headgate.coordinator.core.state import CoordinatorState
from headgate.coordinator.core.term import SessionId, TermMemory, TimerPurpose
from headgate.records.control import FeedRecorded, Liveness, OutcomeStatus, RequestSettled, SpanDispatched, is_unsettled
from headgate.records.keys import FeedKey, OutcomeKey, ProgressKey, SessionKey, SpanKey, TaskKey
from headgate.runtime import draft
from headgate.runtime.draft import timer_name
from headgate.runtime.machine import Now

__all__ = ["CoordinatorDraft"]


class CoordinatorDraft(draft.Draft[CoordinatorState, TermMemory]):
    """Facts and effects of one decision (runtime/draft.py)."""

    def __init__(self, state: CoordinatorState, term: TermMemory, now: Now) -> None:
        """An empty decision."""
        super().__init__(state, term, now)
        self.feeds_touched: set[str] = set()
        self.spans_touched: dict[str, set[SpanKey]] = {}
        """By feed."""
        self._role_counts: dict[SessionId, int] = {}
        self._starting_counts: dict[SessionId, int] = {}

    # --- what is true, this decision included ---

    def span(self, key: SpanKey) -> SpanDispatched | None:
        """The span's record."""
        return self.decided(key, self.state.spans.get(key))

    def feed(self, name: str) -> FeedRecorded | None:
        """The feed's record."""
        return self.decided(FeedKey(name), self.state.feeds.get(name))

    def outcome(self, request: str) -> RequestSettled | None:
        """The latest outcome of a request."""
        return self.decided(OutcomeKey(request), self.state.outcomes.get(request))

    def is_wanted(self, key: SpanKey) -> bool:
        """Whether the span's feed runs and plans it, and its table is not paused."""
        feed = self.feed(key.feed)
        if feed is None or not is_to_run(feed, key.span):
            return False
        index = self.state.index.feeds.get(key.feed)
        return index is not None and key.span in index.plans

    def is_abandoned(self, name: str) -> bool:
        """Whether the feed must end without its sink (abandoning.py)."""
        feed = self.feed(name)
        return feed is not None and feed.abandoned

    def takes_agent(self, key: SpanKey) -> bool:
        """Whether the span needs an agent: it is wanted, unassigned, and no open span shares a partition with it."""
        if self.is_abandoned(key.feed):
            return False
        return takes_agent(self.span(key), is_wanted=self.is_wanted(key)) and not self.is_covered(key)

    def is_covered(self, key: SpanKey) -> bool:
        """Whether another span with a partition of this one is not sealed yet."""
        return any(is_open(self.span(other)) for other in self.state.index.overlapping(key))

    def is_live(self, session: SessionId) -> bool:
        """Whether the session is alive."""
        return self.state.is_live(session) and not self.is_touched(SessionKey(*session))

    def is_answered(self, session: SessionId) -> bool:
        """Whether the session has answered this owner (membership.py defines what counts as an answer)."""
        answer = self.state.answers.get(session)
        is_mine = answer is not None and answer.owner_rev == self.term.owner_rev
        return is_mine or session in self.term.newcomers

    def is_lost(self, session: SessionId) -> bool:
        """Whether the session's roles count as lost: it is dead, or has not answered by the end of the barrier."""
        return not self.is_live(session) or (self.term.is_open and not self.is_answered(session))

    def is_target(self, session: SessionId) -> bool:
        """Whether the session can be assigned roles: alive, answered, not stopping, its agent's only or first one."""
        if not self.is_live(session) or not self.is_answered(session):
            return False
        if self.state.agents[session].liveness is not Liveness.ALIVE or session in self.term.drains:
            return False
        return len(self.state.index.namesakes[session[0]]) == 1 or not self._has_elder(session)

    def targets(self) -> list[SessionId]:
        """Sessions that can be assigned roles, in order."""
        return [session for session in self.state.index.live.in_order() if self.is_target(session)]

    def _has_elder(self, session: SessionId) -> bool:
        """Another session has the agent's name, and neither dies nor leaves (membership.py: who came first).

        The younger one either finds out that the name is in use and ends, or outlives the other.
        """
        holder = self.term.names.get(session[0], session)
        return holder != session and self.has_name(holder)

    def has_name(self, session: SessionId) -> bool:
        """Whether the session is alive and stays. Until it ends, no other session of its agent is assigned anything."""
        return self.is_live(session) and self.state.agents[session].liveness is Liveness.ALIVE

    def role_count(self, session: SessionId) -> int:
        """How many roles the session has."""
        return len(self.state.index.roles.get(session, ())) + self._role_counts.get(session, 0)

    def starting_count(self, session: SessionId) -> int:
        """How many of the session's roles are for spans that it is still opening."""
        return self.state.index.starting.get(session, 0) + self._starting_counts.get(session, 0)

    def count_spans(self, feed: str) -> tuple[int, int]:
        """(open, broken) spans of the feed."""
        index = self.state.index.feed(feed)
        open_count, broken_count = index.open_count, index.broken_count
        for key in self.spans_touched.get(feed, ()):
            old, new = self.state.spans.get(key), self.span(key)
            open_count += is_open(new) - is_open(old)
            broken_count += is_broken(new) - is_broken(old)
        return open_count, broken_count

    def first_erring(self, feed: str) -> SpanKey | None:
        """A span of the feed that counts as replicating, but whose agent reports an error; None if there is none."""
        touched = self.spans_touched.get(feed, set())
        for key in sorted(touched):
            record = self.span(key)
            if is_erring(record, self.state.word_of_primary(key, record)):
                return key
        return next((key for key in self.state.index.feed(feed).erring.in_order() if key not in touched), None)

    def failing_count(self, feed: str) -> int:
        """Spans of the feed with failures that no progress has reset yet."""
        count = self.state.index.feed(feed).failing_count
        for key in self.spans_touched.get(feed, ()):
            count += is_failing(self.span(key)) - is_failing(self.state.spans.get(key))
        return count

    def moving_count(self, feed: str) -> int:
        """Spans of the feed that are on their way from one agent to another."""
        count = self.state.index.feed(feed).moving_count
        for key in self.spans_touched.get(feed, ()):
            count += is_moving(self.span(key)) - is_moving(self.state.spans.get(key))
        return count

    def has_timer(self, kind: str, subject: Any) -> bool:
        """Whether the term has this timer running."""
        return timer_name(kind, subject) in self.term.timers

    # --- what this decision changes ---

    def forget_span(self, key: SpanKey) -> None:
        """Delete the owner's keys of a span that no longer exists: its record, and the reports of dead sessions.

        Live sessions delete their own reports.
        """
        state = self.state
        self.term.loads.forget(key)
        for kind in ("retry", "rest", "prepare"):
            self.cancel_timer(kind, key)
        self.term.retry_due.discard(key)
        self.term.resting.discard(key)
        self.term.starting.pop(key, None)
        self.term.draining.pop(key, None)
        self.term.avoided.pop(key, None)
        if self.span(key) is not None:
            self.put_span(key, None)
        for session in sorted(state.tasks.get(key, ())):
            if session in state.ended:
                self.put(TaskKey(key.feed, key.span, *session), None)
        for session in sorted(state.progress.get(key, ())):
            if session in state.ended:
                self.put(ProgressKey(key.feed, key.span, *session), None)

    def put_span(self, key: SpanKey, record: SpanDispatched | None) -> None:
        """Decide the span's new record."""
        self._count_roles(self.span(key), -1)
        self._count_roles(record, +1)
        self.put(key, record)
        self.spans_touched.setdefault(key.feed, set()).add(key)
        self.feeds_touched.add(key.feed)

    def settle(self, request: str | None, status: OutcomeStatus, reason: str) -> None:
        """Decide the outcome of a request. A withdrawn request gets none."""
        if request is None:
            return
        if request not in self.state.requests:
            if self.outcome(request) is not None:
                self.put(OutcomeKey(request), None)
            return
        known = self.outcome(request)
        if not is_unsettled(known):
            # A request withdrawn and made again has an outcome of its own; what the first one started may end later.
            return
        self.put_outcome(OutcomeKey(request), status, reason)

    def set_timer(self, kind: str, subject: Any, delay_seconds: float) -> None:
        """Set a timer; the term records its purpose."""
        self.term.timers[timer_name(kind, subject)] = TimerPurpose(kind, subject)
        super().set_timer(kind, subject, delay_seconds)

    def cancel_timer(self, kind: str, subject: Any) -> None:
        """Cancel a timer, if it runs."""
        if self.term.timers.pop(timer_name(kind, subject), None) is not None:
            super().cancel_timer(kind, subject)

    def _count_roles(self, record: SpanDispatched | None, by: int) -> None:
        if record is None:
            return
        for role in (record.primary, record.secondary):
            if role is not None:
                session = (role.agent, role.session)
                self._role_counts[session] = self._role_counts.get(session, 0) + by
                if is_starting(record, role):
                    self._starting_counts[session] = self._starting_counts.get(session, 0) + by
