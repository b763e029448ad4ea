"""One round of scheduling: what must be closed, then the first scheduler that has work.

Their order is that of TiCDC's scheduler v3: **basic** (nobody has the span), **drain** (its agent goes, or is to be
emptied), move (an operator's, begun when it is asked for: feeds.py), **rebalance** (even numbers, on request),
**split** (one table more than an agent's share: dividing.py), **balance** (even load, by itself). The first with work
has the round, because what follows would take its capacity; the others get theirs when it has none: every input ends in
a round, and heartbeats are inputs.

A round looks only at the spans that need something (index.py) and stops when no agent has capacity left, so its cost is
that of the work it does.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from headgate.coordinator.core import dividing, joining, spans, waiting
from headgate.coordinator.core.draft import Draft
from headgate.coordinator.core.span_predicates import is_open
from headgate.coordinator.core.term import Rebalance, SessionId
from headgate.coordinator.schedulers import balance, basic, drain, rebalance
from headgate.coordinator.schedulers.capacity import STARTING_PER_AGENT_MAX, Capacity, FeedQuota, SessionCapacity
from headgate.records.keys import SpanKey

__all__ = ["capacity_of", "is_anyone_leaving", "run_round"]

CLOSES_PER_ROUND_MAX: Final = 2_000
"""Spans closed in one decision; the transaction of a turn stays below the client's queue bound (eventlog/term.py)."""


def run_round(draft: Draft) -> None:
    """Give work, as far as the barrier is open and there is any."""
    index, term = draft.state.index, draft.term
    if not term.is_open:
        return
    if index.closing:
        _close(draft)
    _forget_outdated(draft)
    changed = (key for name in sorted(draft.spans_touched) for key in sorted(draft.spans_touched[name]))
    touched = [key for key in changed if draft.takes_agent(key)]
    leaving = _leaving(draft)
    wants_agent = bool(touched or index.needy or term.retry_due)
    if not (wants_agent or leaving or term.rebalances or term.is_even_due or term.loads.is_due):
        return
    capacity, quota = capacity_of(draft), FeedQuota(draft.moving_count)
    if wants_agent and _place(draft, touched, capacity):
        return
    if leaving and _drain(draft, leaving, capacity, quota):
        return
    if term.rebalances and _rebalance(draft, capacity, quota):
        return
    if term.is_even_due and _even(draft, capacity, quota):
        return
    if term.loads.is_due:
        _balance(draft, capacity, quota)


def is_anyone_leaving(draft: Draft) -> bool:
    """An agent is stopping, or being emptied: nothing is evened out meanwhile, for it would be for nothing."""
    return bool(_leaving(draft))


def capacity_of(draft: Draft) -> Capacity:
    """The free capacity of every session that may be given roles."""
    agents = draft.state.agents
    return Capacity(
        [
            SessionCapacity(
                session, draft.role_count(session), draft.starting_count(session), agents[session].capacity_spans
            )
            for session in draft.state.index.live.in_order()
            # Asked first because it is cheap: while much is to be dispatched, every event finds nearly all agents busy.
            if draft.starting_count(session) < STARTING_PER_AGENT_MAX and draft.is_target(session)
        ]
    )


def _close(draft: Draft) -> None:
    index = draft.state.index
    for key in list(islice(index.closing.in_order(), CLOSES_PER_ROUND_MAX)):
        if not draft.is_wanted(key):
            spans.close(draft, key)
    if len(index.closing) > CLOSES_PER_ROUND_MAX:
        draft.set_timer("schedule", "", 0.0)


def _forget_outdated(draft: Draft) -> None:
    """Sealed spans of tables that are divided otherwise now: what takes their place waits for nothing else."""
    sealed = [
        key for name in sorted(draft.spans_touched) for key in draft.spans_touched[name] if _is_outdated(draft, key)
    ]
    for key in sorted({*islice(draft.state.index.outdated.in_order(), CLOSES_PER_ROUND_MAX), *sealed}):
        if _is_outdated(draft, key):
            draft.forget_span(key)
            # Those that waited for it are in the index, not in this decision; the next round takes them from there.
            draft.set_timer("schedule", "", 0.0)


def _is_outdated(draft: Draft, key: SpanKey) -> bool:
    feed, record = draft.feed(key.feed), draft.span(key)
    is_planned = key.span in draft.state.index.feed(key.feed).plans
    return feed is not None and not is_planned and record is not None and not is_open(record)


def _place(draft: Draft, touched: list[SpanKey], capacity: Capacity) -> bool:
    needy = _needy(draft, touched)
    placements = list(
        basic.place(needy, capacity, lambda key: spans.writers(draft, key), lambda key: _avoided(draft, key))
    )
    for key, target in placements:
        spans.add(draft, key, target)
    return bool(placements)


def _avoided(draft: Draft, key: SpanKey) -> set[SessionId]:
    """Who should get the span only if nobody else can."""
    last = draft.term.avoided.get(key)
    return dividing.holders(draft, key) | waiting.passed_over(draft, key) | ({last} if last is not None else set())


def _needy(draft: Draft, touched: list[SpanKey]) -> Iterator[SpanKey]:
    """Spans that want an agent, in order: those of the index, those of this decision, those whose back-off is over."""
    previous = None
    due = draft.term.retry_due
    fresh = [key for key in touched if not (record := draft.span(key)) or not record.failures]
    known = draft.state.index.needy.in_order()
    # While much is to be dispatched only the index has anything; merging one would cost as much as placing from it.
    for key in heapq.merge(known, fresh, due.in_order()) if fresh or due else known:
        if key != previous and draft.takes_agent(key) and not spans.outsiders(draft, key):
            previous = key
            yield key


def _leaving(draft: Draft) -> list[SessionId]:
    asked = [session for session, task in draft.term.drains.items() if not task.is_done]
    return sorted(filter(draft.is_live, {*draft.state.index.stopping.in_order(), *asked}))


def _may_move(draft: Draft, key: SpanKey) -> bool:
    return spans.is_movable(draft.span(key)) and draft.is_wanted(key) and key not in draft.term.resting


def _drain(draft: Draft, leaving: list[SessionId], capacity: Capacity, quota: FeedQuota) -> bool:
    roles = draft.state.index.roles
    moves = list(
        drain.leave(
            leaving,
            lambda session: roles[session].in_order() if session in roles else (),
            lambda key: _may_move(draft, key),
            capacity,
            quota,
        )
    )
    for key, target in moves:
        spans.begin_move(draft, key, target, None)
    return bool(moves)


def _rebalance(draft: Draft, capacity: Capacity, quota: FeedQuota) -> bool:
    if is_anyone_leaving(draft):
        return False
    has_begun = False
    for name, task in sorted(draft.term.rebalances.items()):
        if task.plan is None:
            task.plan = _even_plan(draft, name)
        while task.plan and quota.has(name) and _begin_next(draft, task, capacity):
            quota.take(name)
            has_begun = True
    return has_begun


def _even_plan(draft: Draft, name: str) -> deque[tuple[SpanKey, SessionId]] | None:
    """None while a span of the feed does not replicate: it would be counted where it does not stay."""
    index = draft.state.index.feed(name)
    if index.waiting or draft.moving_count(name):
        return None
    held = []
    for span in sorted(index.plans):
        record = draft.span(SpanKey(name, span))
        if record is None or record.primary is None or not spans.is_movable(record):
            return None
        held.append((SpanKey(name, span), (record.primary.agent, record.primary.session)))
    targets = [session for session in draft.state.index.live.in_order() if draft.is_target(session)]
    return deque(rebalance.spread(held, targets))


def _begin_next(draft: Draft, task: Rebalance, capacity: Capacity) -> bool:
    """Begin the plan's next move that can be made; False if it has to wait for capacity, or there is none."""
    while task.plan:
        key, target = task.plan[0]
        if _may_move(draft, key) and draft.is_target(target):
            if not capacity.has(target):
                return False
            task.plan.popleft()
            capacity.take(target)
            spans.begin_move(draft, key, target, None)
            task.moving[key] = target
            return True
        task.plan.popleft()
        task.failed_count += 1
    return False


def _even(draft: Draft, capacity: Capacity, quota: FeedQuota) -> bool:
    if is_anyone_leaving(draft) or draft.term.rebalances:
        return False  # the joiners' time stays come
    draft.term.is_even_due = False
    return joining.move_some(
        draft,
        capacity,
        quota,
        may_move=lambda key: _may_move(draft, key),
        avoided=lambda key: _avoided(draft, key),
    )


def _balance(draft: Draft, capacity: Capacity, quota: FeedQuota) -> None:
    loads = draft.term.loads
    rates = loads.end(draft.now.monotonic)
    if not rates and not draft.state.index.parts:
        loads.judge(None)
        return
    loads.begin(draft.now.monotonic)
    draft.set_timer("balance", "", balance.BALANCE_SECONDS)
    totals = {session: 0.0 for session in draft.state.index.live.in_order() if draft.is_target(session)}
    movable: dict[SessionId, dict[SpanKey, float]] = {session: {} for session in totals}
    for key, rate in rates.items():
        record = draft.span(key)
        role = None if record is None else record.primary
        if role is not None and (role.agent, role.session) in totals:
            totals[role.agent, role.session] += rate
            if _may_move(draft, key):
                movable[role.agent, role.session][key] = rate
    is_filling = any(joiner.moving_count for joiner in draft.term.joiners.values())
    is_settled = not is_anyone_leaving(draft) and not is_filling
    if is_settled and dividing.weigh(draft, rates, len(totals)):
        return
    busiest = balance.hottest(totals) if is_settled else None
    if loads.judge(busiest) < balance.STREAK_MIN or busiest is None:
        return
    loads.judge(None)
    for key, target in balance.relieve(busiest, totals, movable[busiest]):
        if capacity.has(target) and quota.has(key.feed):
            capacity.take(target)
            quota.take(key.feed)
            spans.begin_move(draft, key, target, None)
