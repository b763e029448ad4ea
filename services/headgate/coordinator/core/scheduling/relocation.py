"""Moves spans to where they should be, on request or by measured load: the input of the schedulers.

Two requests take time: to empty an agent (``drain_agent``), and to spread a feed's spans evenly (``rebalance_feed``).
Each is ``accepted``, is kept in the term while it is processed round by round (rounds.py), and ends in an outcome. A
new owner resumes accepted requests. A request that is deleted is withdrawn: nothing more is started, moves under way
complete.

An agent that has been emptied is assigned nothing for a while, so that the operator can stop it. An agent that stops by
itself needs no request: its liveness shows it, and the drain scheduler empties it.

A feed that is spread evenly on request gets its plan of moves once; each round starts what is left of it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.outcomes import no_such_agent, no_such_feed
from headgate.coordinator.core.scheduling.round_view import capacity_of, is_anyone_leaving
from headgate.coordinator.core.spans import span_lifecycle
from headgate.coordinator.core.term import Drain, Rebalance, SessionId, Spread
from headgate.coordinator.schedulers.balance import BALANCE_SECONDS
from headgate.coordinator.schedulers.contract import Move, View
from headgate.coordinator.schedulers.rebalance import spread
from headgate.records.control import Liveness, OperationRequested, OutcomeStatus, WantedState
from headgate.records.keys import SpanKey
from headgate.records.name_lists import number_of, shown_names

DRAINED_SECONDS: Final = 60.0
"""How long an emptied agent is assigned nothing once its request is gone: time to stop it, and a limit if it stays."""

DRAIN_STUCK_SECONDS_MAX: Final = 150.0
"""A drain from which no table has left for this long has failed: a target may take a minute to prepare one, then the
agent a minute to hand it over before it is skipped (waiting.py), and each of the two may be checked late once."""

HOLDS_MAX: Final = 10
"""How often that is prolonged while the request exists: other shards may still be emptying the agent, and the client
deletes the request when all are done. Ten minutes, so that a request that is never deleted does not hold an agent
without limit."""


def ask_drain(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start a drain_agent: every span of the agent's session in this shard leaves it."""
    sessions = [session for session in draft.state.index.live.in_order() if session[0] == requested.agent]
    sessions = [session for session in sessions if draft.is_live(session)]
    reason = _why_not_drained(draft, requested, sessions)
    if reason is not None:
        return _turn_down(draft, request, reason)
    for session in sessions:
        draft.term.drains[session] = Drain(request, left_count=draft.role_count(session))
        draft.set_timer("undrained", session, DRAIN_STUCK_SECONDS_MAX)
    count = sum(draft.role_count(session) for session in sessions)
    draft.settle(request, OutcomeStatus.ACCEPTED, f"{count} tables leave {requested.agent}")
    return None


def _why_not_drained(draft: CoordinatorDraft, requested: OperationRequested, sessions: list[SessionId]) -> str | None:
    live = [session for session in draft.state.index.live.in_order() if draft.is_live(session)]
    if not sessions:
        return no_such_agent(draft, requested.agent)
    if all(draft.state.agents[session].liveness is Liveness.STOPPING for session in sessions):
        return f"agent {requested.agent!r} is stopping, its tables leave it already"
    if any(session in draft.term.drains and not draft.term.drains[session].is_done for session in sessions):
        return (
            f"agent {requested.agent!r} is being drained already, by request {draft.term.drains[sessions[0]].request}"
        )
    others = [session for session in live if session not in sessions and draft.is_target(session)]
    if not others and any(draft.role_count(session) for session in sessions):
        return f"{requested.agent!r} is the only agent, so its tables cannot move. Start another agent first"
    return None


def ask_rebalance(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start a rebalance_feed: each feed's spans are spread evenly over the agents, by number.

    Without a feed it applies to every running feed of the shard, with one outcome for all.
    """
    running = [name for name, feed in sorted(draft.state.feeds.items()) if feed.wanted is WantedState.RUNNING]
    names = [requested.feed] if requested.feed else running
    if not names:
        return draft.settle(request, OutcomeStatus.DONE, "no feed runs here: there is nothing to spread")
    reason = _why_not_rebalanced(draft, names)
    if reason is not None:
        return _turn_down(draft, request, reason)
    draft.term.spreads[request] = Spread(set(names), is_of_all=not requested.feed)
    for name in names:
        draft.term.rebalances[name] = Rebalance(request)
    of = "the feed" if requested.feed else f"one of the {len(names)} feeds"
    draft.settle(request, OutcomeStatus.ACCEPTED, f"begins when every table of {of} is replicating")
    return None


def _why_not_rebalanced(draft: CoordinatorDraft, names: list[str]) -> str | None:
    for name in names:
        feed = draft.feed(name)
        if feed is None:
            return no_such_feed(draft, name)
        if feed.wanted is not WantedState.RUNNING:
            return f"feed {name!r} is {feed.state}, wanted {feed.wanted}: resume it first"
    if is_anyone_leaving(draft):
        return "an agent is leaving: ask again when it has left"
    for name in names:
        if name in draft.term.rebalances:
            return f"feed {name!r} is being rebalanced already, by request {draft.term.rebalances[name].request}"
    targets = draft.targets()
    if len(targets) < 2:
        return f"{len(targets)} agent can take tables: there is nothing to spread them over"
    return None


def _turn_down(draft: CoordinatorDraft, request: str, reason: str) -> None:
    """Refuse the request, or fail it if an earlier owner had accepted it."""
    status = OutcomeStatus.REFUSED if draft.outcome(request) is None else OutcomeStatus.FAILED
    draft.settle(request, status, reason)


def take_back(draft: CoordinatorDraft, request: str) -> None:
    """The operator has withdrawn the request."""
    term = draft.term
    for session in [session for session, task in term.drains.items() if task.request == request and not task.is_done]:
        _end_drain(draft, session)
    for name in [name for name, task in term.rebalances.items() if task.request == request]:
        del term.rebalances[name]
    term.spreads.pop(request, None)


def settle(draft: CoordinatorDraft) -> None:
    """After a round: settle what has been reached, or no longer can be."""
    if draft.term.drains and not any(map(draft.is_target, draft.state.index.live.in_order())):
        _give_up_drains(draft)
    for session in sorted(draft.term.drains):
        _settle_drain(draft, session, draft.term.drains[session])
    for name in sorted(draft.term.rebalances):
        _settle_rebalance(draft, name, draft.term.rebalances[name])


def end_hold(draft: CoordinatorDraft, session: SessionId) -> None:
    """Allow an emptied agent that still runs to get tables again, once no request keeps it empty any more."""
    task = draft.term.drains.get(session)
    if task is None:
        return
    task.holds += 1
    if task.request in draft.state.requests and task.holds < HOLDS_MAX:
        draft.set_timer("drained", session, DRAINED_SECONDS)
    else:
        del draft.term.drains[session]


def give_up_drain(draft: CoordinatorDraft, session: SessionId) -> None:
    """Check whether any table has left since the last check: if none has, the drain has failed."""
    task = draft.term.drains.get(session)
    if task is None or task.is_done:
        return
    count = draft.role_count(session)
    if count < task.left_count:
        task.left_count = count
        draft.set_timer("undrained", session, DRAIN_STUCK_SECONDS_MAX)
        return
    why = (
        "they cannot be moved now: see `headgate why`"
        if capacity_of(draft)
        else ("no other agent has a free seat: start one, or raise a capacity (HEADGATE_AGENT__CAPACITY_SPANS)")
    )
    reason = f"{count} tables are still on {session[0]}, none has left for {DRAIN_STUCK_SECONDS_MAX:.0f} s: {why}"
    draft.settle(task.request, OutcomeStatus.FAILED, reason)
    _end_drain(draft, session)


def _end_drain(draft: CoordinatorDraft, session: SessionId) -> None:
    del draft.term.drains[session]
    for timer in ("drained", "undrained"):
        draft.cancel_timer(timer, session)


def _give_up_drains(draft: CoordinatorDraft) -> None:
    """No other agent is left: tables on an agent that should be emptied are better than tables on none."""
    for session, task in sorted(draft.term.drains.items()):
        if not task.is_done:
            draft.settle(task.request, OutcomeStatus.FAILED, "no other agent is left to take its tables: start another")
        _end_drain(draft, session)
    draft.set_timer("schedule", "", 0.0)


def _settle_drain(draft: CoordinatorDraft, session: SessionId, task: Drain) -> None:
    if not draft.is_live(session):
        _end_drain(draft, session)
        if not task.is_done:
            reason = f"session {session[1]} ended before it was empty; its tables go to any free agent"
            draft.settle(task.request, OutcomeStatus.FAILED, reason)
    elif not task.is_done and not draft.role_count(session):
        task.is_done = True
        draft.cancel_timer("undrained", session)
        draft.set_timer("drained", session, DRAINED_SECONDS)
        reason = f"{session[0]} has no table left and is given none for {DRAINED_SECONDS:.0f} s: stop it now"
        draft.settle(task.request, OutcomeStatus.DONE, reason)


def _settle_rebalance(draft: CoordinatorDraft, name: str, task: Rebalance) -> None:
    feed = draft.feed(name)
    for key, target in sorted(task.moving.items()):
        record = draft.span(key)
        if record is not None and record.secondary is not None:
            continue
        holder = None if record is None else record.primary
        is_there = holder is not None and (holder.agent, holder.session) == target
        if is_there and not span_lifecycle.is_movable(record):
            continue
        task.moved_count += is_there
        task.failed_count += not is_there
        del task.moving[key]
    if feed is None or feed.wanted is not WantedState.RUNNING:
        reason = "the feed is being stopped or removed"
    elif is_anyone_leaving(draft):
        reason = "an agent is leaving: ask again when it has left"
    elif task.plan is None or task.plan or task.moving:
        return
    elif task.failed_count:
        reason = f"{task.failed_count} tables could not be moved: ask again; see why"
    else:
        reason = ""
    del draft.term.rebalances[name]
    _end_spread(draft, name, task, reason)


def _end_spread(draft: CoordinatorDraft, name: str, task: Rebalance, reason: str) -> None:
    """One feed is done, or cannot be (``reason``): the last feed of a request settles it with the result of all."""
    spread = draft.term.spreads.get(task.request)
    if spread is None:
        return
    spread.waiting.discard(name)
    spread.moved_count += task.moved_count
    if reason:
        spread.failed[name] = reason
    if spread.waiting:
        return
    del draft.term.spreads[task.request]
    moved, failed = f"{number_of(spread.moved_count, 'table')} moved", spread.failed
    if not failed:
        draft.settle(task.request, OutcomeStatus.DONE, f"{moved}, the numbers are even")
        return
    texts = [f"feed {name!r}: {reason}" if spread.is_of_all else reason for name, reason in sorted(failed.items())]
    draft.settle(task.request, OutcomeStatus.FAILED, f"{moved}, then it ended: {shown_names(texts, '; ')}")


def measure(draft: CoordinatorDraft, key: SpanKey, session: SessionId) -> None:
    """Record how much a session has moved, if it has the role; the first report of all starts a round of balance."""
    record = draft.state.spans.get(key)
    progress = draft.state.progress.get(key, {}).get(session)
    if record is None or record.primary is None or progress is None:
        return
    role, loads = record.primary, draft.term.loads
    if (role.agent, role.session) != session or progress.epoch != role.epoch:
        return
    if loads.note(key, progress.epoch, progress.bytes) and not loads.is_running:
        loads.begin(draft.now.monotonic)
        draft.set_timer("balance", "", BALANCE_SECONDS)


def make_plans(draft: CoordinatorDraft) -> None:
    """Make the plans of feeds that have none yet, as soon as they can have one."""
    for name, task in sorted(draft.term.rebalances.items()):
        if task.plan is None:
            task.plan = _even_plan(draft, name)


def _even_plan(draft: CoordinatorDraft, name: str) -> deque[tuple[SpanKey, SessionId]] | None:
    """None while a span of the feed that should replicate does not: it would be counted where it does not stay."""
    index = draft.state.index.feed(name)
    if index.waiting or draft.moving_count(name):
        return None
    held = []
    for span in sorted(index.plans):
        record = draft.span(SpanKey(name, span))
        if not draft.is_wanted(SpanKey(name, span)):
            continue  # its table is paused
        if record is None or record.primary is None or not span_lifecycle.is_movable(record):
            return None
        held.append((SpanKey(name, span), (record.primary.agent, record.primary.session)))
    return deque(spread(held, draft.targets()))


def note_begun(draft: CoordinatorDraft, view: View, begun: Sequence[Move]) -> None:
    """Remove from the plans what is under way, and what was skipped because it cannot be moved."""
    moving = {(move.key, move.target) for move in begun}
    for name, task in sorted(draft.term.rebalances.items()):
        left = sum(key.feed == name for key, _ in moving)
        while task.plan and (left or _is_impossible(view, name, task.plan[0])):
            key, target = task.plan.popleft()
            if (key, target) in moving:
                task.moving[key] = target
                left -= 1
            else:
                task.failed_count += 1


def _is_impossible(view: View, name: str, planned: tuple[SpanKey, SessionId]) -> bool:
    """With no quota left it has not been checked."""
    key, target = planned
    return view.quota.has(name) and not (view.may_move(key) and view.is_target(target))
