"""Feeds that are spread evenly on request: the plan of moves, made once, and what is left of it after each round."""

from collections import deque
from collections.abc import Sequence

from headgate.coordinator.core.draft import Draft
from headgate.coordinator.core.spans import span_lifecycle
from headgate.coordinator.core.term import SessionId
from headgate.coordinator.schedulers.contract import Move, View
from headgate.coordinator.schedulers.rebalance import spread
from headgate.records.keys import SpanKey


def make_plans(draft: Draft) -> None:
    """Of feeds that have none yet, as soon as they can have one."""
    for name, task in sorted(draft.term.rebalances.items()):
        if task.plan is None:
            task.plan = _even_plan(draft, name)


def _even_plan(draft: Draft, name: str) -> deque[tuple[SpanKey, SessionId]] | None:
    """None while a span of the feed does not replicate: it would be counted where it does not stay."""
    index = draft.state.index.feed(name)
    if index.waiting or draft.moving_count(name):
        return None
    held = []
    for span in sorted(index.plans):
        record = draft.span(SpanKey(name, span))
        if record is None or record.primary is None or not span_lifecycle.is_movable(record):
            return None
        held.append((SpanKey(name, span), (record.primary.agent, record.primary.session)))
    return deque(spread(held, draft.targets()))


def note_begun(draft: Draft, view: View, begun: Sequence[Move]) -> None:
    """Take off the plans what is under way, and what was passed over for it because it cannot be moved."""
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
    """With no quota left nobody has looked at it."""
    key, target = planned
    return view.quota.has(name) and not (view.may_move(key) and view.is_target(target))
