"""One round of scheduling: what must be closed, then the first scheduler whose proposals can be started.

schedulers/contract.py defines what a scheduler may do, schedulers/standard.py lists them: **basic** (no agent has the
span), **drain** (its agent stops or is being drained), **rebalance** (even numbers, on request), **even** (a share for
an agent that joins), **split** (one table has more than an agent's share), **balance** (even load, by itself). An
operator's move is started when it is requested (requests.py). The first scheduler with work has the round, because the
next ones would take its capacity; they get theirs when it has none: every input ends in a round, and heartbeats are
inputs.

A round reads only the spans that need something (index.py) and stops when no agent has capacity left, so its cost is
that of the work it does. What an owner has to remember of a scheduler's work is recorded here, before the scheduler is
called and after its moves were started.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.scheduling import measuring, relocation
from headgate.coordinator.core.scheduling.round_view import RoundView, free_of
from headgate.coordinator.core.sessions import joining
from headgate.coordinator.core.span_predicates import is_open
from headgate.coordinator.core.spans import dividing, span_lifecycle
from headgate.coordinator.schedulers.contract import Asked, Division, Move, Proposal, Scheduler
from headgate.records.keys import SpanKey

CLOSES_PER_ROUND_MAX: Final = 2_000
"""Spans closed in one decision; the transaction of a turn stays below the client's queue bound (runtime/term.py)."""


def run_round(draft: CoordinatorDraft, schedulers: Sequence[Scheduler]) -> None:
    """Run the schedulers, if the barrier is open and there is work."""
    if not draft.term.is_open:
        return
    if draft.state.index.closing:
        _close(draft)
    _forget_outdated(draft)
    view = RoundView(draft)
    due = view.due()
    for scheduler in schedulers:
        if scheduler.asked in due and _run(draft, scheduler, view):
            return


def _run(draft: CoordinatorDraft, scheduler: Scheduler, view: RoundView) -> bool:
    """Run one scheduler. Return whether anything was started."""
    if scheduler.asked is Asked.MEASURED:
        view.measure()
        if view.measured is None:
            return False
    before = _BEFORE.get(scheduler.name)
    if before is not None:
        before(draft, view)
    begun = [proposal for proposal in scheduler.propose(view) if _begin(draft, view, proposal)]
    after = _AFTER.get(scheduler.name)
    if after is not None:
        after(draft, view, [each for each in begun if isinstance(each, Move)])
    return bool(begun)


_BEFORE: Final[Mapping[str, Callable[[CoordinatorDraft, RoundView], None]]] = {
    "rebalance": lambda draft, _view: relocation.make_plans(draft),
    "even": lambda _draft, view: view.look_at_joiners(),
}
_AFTER: Final[Mapping[str, Callable[[CoordinatorDraft, RoundView, Sequence[Move]], None]]] = {
    "rebalance": relocation.note_begun,
    "even": lambda draft, _view, begun: joining.note_begun(draft, begun),
    "balance": lambda draft, view, _begun: measuring.judge(draft, view.measured),
}
"""By the scheduler's name: what the term records for it."""


def _begin(draft: CoordinatorDraft, view: RoundView, proposal: Proposal) -> bool:
    """Start what was proposed; False if it is not possible now."""
    if isinstance(proposal, Division):
        return dividing.try_division(draft, proposal)
    key, target = proposal.key, proposal.target
    if free_of(draft, target) == 0:
        return False
    if draft.takes_agent(key):
        if span_lifecycle.outsiders(draft, key) or any(
            writer != target for writer in span_lifecycle.writers(draft, key)
        ):
            return False
        span_lifecycle.add(draft, key, target)
    elif view.may_move(key) and not _has(draft, key, target):
        span_lifecycle.begin_move(draft, key, target, None)
    else:
        return False
    return True


def _has(draft: CoordinatorDraft, key: SpanKey, session: tuple[str, str]) -> bool:
    record = draft.span(key)
    role = None if record is None else record.primary
    return role is not None and (role.agent, role.session) == session


def _close(draft: CoordinatorDraft) -> None:
    index = draft.state.index
    for key in list(islice(index.closing.in_order(), CLOSES_PER_ROUND_MAX)):
        if not draft.is_wanted(key):
            span_lifecycle.close(draft, key)
    if len(index.closing) > CLOSES_PER_ROUND_MAX:
        draft.set_timer("schedule", "", 0.0)


def _forget_outdated(draft: CoordinatorDraft) -> None:
    """Forget sealed spans of tables that are now divided differently: their successors wait for nothing else."""
    sealed = [
        key for name in sorted(draft.spans_touched) for key in draft.spans_touched[name] if _is_outdated(draft, key)
    ]
    for key in sorted({*islice(draft.state.index.outdated.in_order(), CLOSES_PER_ROUND_MAX), *sealed}):
        if _is_outdated(draft, key):
            draft.forget_span(key)
            # Those that waited for it are in the index, not in this decision; the next round takes them from there.
            draft.set_timer("schedule", "", 0.0)


def _is_outdated(draft: CoordinatorDraft, key: SpanKey) -> bool:
    feed, record = draft.feed(key.feed), draft.span(key)
    is_planned = key.span in draft.state.index.feed(key.feed).plans
    return feed is not None and not is_planned and record is not None and not is_open(record)
