"""Evaluates a round of load measurements: what schedulers see of it, and which session was too busy how often."""

from collections.abc import Callable

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.spans.dividing import table_loads
from headgate.coordinator.core.term import SessionId
from headgate.coordinator.schedulers import balance, split
from headgate.coordinator.schedulers.contract import Measured
from headgate.records.keys import SpanKey


def take(draft: CoordinatorDraft, may_move: Callable[[SpanKey], bool], *, is_settled: bool) -> Measured | None:
    """End the round that is due, and start the next one while anything moves; None if nothing follows from it.

    While an agent leaves, or is being filled, loads do not predict the loads after that.
    """
    loads = draft.term.loads
    rates = loads.end(draft.now.monotonic)
    is_quiet = not rates and not draft.state.index.parts
    if not is_quiet:
        loads.begin(draft.now.monotonic)
        draft.set_timer("balance", "", balance.BALANCE_SECONDS)
    if is_quiet or not is_settled or any(joiner.moving_count for joiner in draft.term.joiners.values()):
        loads.judge(None)
        return None
    totals = dict.fromkeys(draft.targets(), 0.0)
    movable: dict[SessionId, dict[SpanKey, float]] = {session: {} for session in totals}
    for key, rate in rates.items():
        record = draft.span(key)
        role = None if record is None else record.primary
        if role is not None and (role.agent, role.session) in totals:
            totals[role.agent, role.session] += rate
            if may_move(key):
                movable[role.agent, role.session][key] = rate
    tables = table_loads(draft, rates)
    share = sum(load.bytes_per_s for load in tables.values()) / max(len(totals), 1)
    heats = loads.note_heat({place: split.heat(load, share) for place, load in tables.items()})
    return Measured(totals, movable, tables, heats, loads.hottest, loads.streak)


def judge(draft: CoordinatorDraft, measured: Measured | None) -> None:
    """Record which session was too busy; one that is relieved now starts again."""
    if measured is None:
        return
    busiest = balance.hottest(measured.loads)
    if draft.term.loads.judge(busiest) >= balance.STREAK_MIN:
        draft.term.loads.judge(None)
