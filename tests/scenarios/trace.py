"""How inputs, facts and effects look in a scenario's trace: short, complete in what matters, without times."""

from collections.abc import Callable
from typing import Any

from headgate.coordinator.core.effects import DiscoverTables, ForgetFeed, ResolveFeed, ResolveStart
from headgate.records.base import Fact
from headgate.records.control import (
    AgentAnnounced,
    Assignment,
    FeedProgressed,
    FeedRecorded,
    OperationRequested,
    RequestSettled,
    SessionEnded,
    SpanDispatched,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
)
from headgate.records.spans import table_of
from headgate.runtime.machine import (
    Arrived,
    CancelTimer,
    EffectFinished,
    HolderSilent,
    ResignOwner,
    SetTimer,
    TermBegan,
    TimerFired,
)

WATCHES = ("start", "drain", "even")
"""Timers for roles that begin or drain (coordinator/core/spans/waiting.py) and agents that joined (joining.py).
They are set at every turn and shown only when they expire."""


DISCOVER = "discover/"
"""A look at a feed's source again (discovery.py), every ten seconds: shown only if something comes of it."""


def is_quiet(thing: Any) -> bool:
    """An input or effect that nobody wants to read about unless something follows from it."""
    match thing:
        case SetTimer(name=name) | CancelTimer(name=name) | TimerFired(name=name):
            return bool(name in WATCHES or name.startswith(DISCOVER))
        case DiscoverTables() | EffectFinished(effect=DiscoverTables()):
            return True
        case _:
            return False


def describe_input(given: Any) -> str | None:
    """One line; None for a heartbeat, which is shown only if something follows from it."""
    match given:
        case TermBegan(owner_rev=rev):
            return f"term began, owner_rev {rev}"
        case Arrived(delivery=delivery):
            value = delivery.value
            if isinstance(value, AgentAnnounced) and value.heartbeat > 1 and value.liveness == "alive":
                return None
            return describe_fact(Fact(delivery.key, value))
        case TimerFired(name=name):
            return f"timer {name}"
        case HolderSilent(holder=(agent, session)):
            return f"silent {agent}/{session}"
        case EffectFinished(effect=effect, result=result):
            return f"{type(effect).__name__} {effect.feed}: {type(result).__name__}"
        case _:
            raise TypeError(given)


def describe_effect(effect: Any) -> str:
    match effect:
        case SetTimer(name=name, delay_seconds=delay):
            return f"* timer {name} in {delay:g} s"
        case CancelTimer(name=name):
            return f"* no timer {name}"
        case ResolveFeed() | ResolveStart() | ForgetFeed():
            return f"* {type(effect).__name__} {effect.feed}"
        case ResignOwner():
            return "* ResignOwner"
        case _:
            raise TypeError(effect)


def describe_fact(fact: Fact) -> str:
    return f"{fact.key.topic} {fact.key.text()}: {'deleted' if fact.value is None else _describe(fact.value)}"


def _describe(value: Any) -> str:
    return _FORMS[type(value)](value)


def _dispatched(value: SpanDispatched) -> str:
    parts = [f"{value.state} by {value.owner_rev}"]
    parts += [f"{name} {_role(role)}" for name, role in _roles(value)]
    if value.incarnation > 1 or value.revision:
        parts.append(f"of {value.incarnation}.{value.revision}")
    if value.sealed:
        parts.append("sealed")
    if value.moving_request:
        parts.append(f"for {value.moving_request}")
    if value.copy:
        parts.append(f"copy {value.copy}")
    if value.maintain:
        parts.append(f"maintain {value.maintain}")
    if value.failures:
        parts.append(f"failures {value.failures} ({value.last_error})")
    return ", ".join(parts)


def _roles(value: SpanDispatched) -> list[tuple[str, Assignment]]:
    roles = (("primary", value.primary), ("secondary", value.secondary))
    return [(name, role) for name, role in roles if role is not None]


def _role(role: Assignment) -> str:
    return f"{role.session}@{role.epoch}"


def _progressed(value: FeedProgressed) -> str:
    held = "nothing" if value.held_by is None else f"{value.held_by.span} ({value.held_by.stage})"
    at = " ".join(f"{span}{_at(positions)}" for span, positions in sorted(value.positions.items()))
    resolved = "" if value.resolved_ts is None else f", resolved {value.resolved_ts}"
    return f"ts {value.checkpoint_ts}{resolved}, held by {held}; {at}".rstrip("; ")


def _at(positions: dict[int, int]) -> str:
    return "" if not positions else f" at {'/'.join(str(offset) for _, offset in sorted(positions.items()))}"


def _reported(value: TaskReported) -> str:
    error = f" {value.error_code}" if value.error_code else ""
    return f"{value.state} under {value.epoch}{_at(value.positions)}{error}"


def _recorded(value: FeedRecorded) -> str:
    error = f" {value.error_code}: {value.error}" if value.error_code else ""
    form = f", incarnation {value.incarnation}" if value.incarnation > 1 else ""
    form += f", revision {value.revision}" if value.revision else ""
    spans = [plan.span for plan in value.spans]
    form += f", divided {' '.join(sorted(spans))}" if any(table_of(span) != span for span in spans) else ""
    form += f", pinned {' '.join(value.pinned)}" if value.pinned else ""
    form += f", paused {' '.join(paused.table for paused in value.paused)}" if value.paused else ""
    form += f", notices: {'; '.join(value.notices)}" if value.notices else ""
    return f"{value.feed_id} wanted {value.wanted}, is {value.state}{form}{error}"


_FORMS: dict[type, Callable[[Any], str]] = {
    SpanDispatched: _dispatched,
    SessionEnded: lambda value: f"dead, {value.reason}",
    AgentAnnounced: lambda value: f"{value.liveness}, capacity {value.capacity_spans}",
    SyncAnswered: lambda value: f"answers {'unasked' if value.owner_rev is None else value.owner_rev}",
    TaskReported: _reported,
    SpanProgressed: lambda value: " ".join(
        [
            f"under {value.epoch}{_at(value.positions)} ts {value.seen_ts}",
            *([] if value.resolved_ts is None else [f"resolved {value.resolved_ts}"]),
            f"rows {value.rows}",
        ]
    ),
    FeedProgressed: _progressed,
    FeedRecorded: _recorded,
    RequestSettled: lambda value: f"{value.status}, {value.reason}",
    OperationRequested: lambda value: " ".join(
        str(part) for part in (value.kind, value.feed, value.table, value.agent, value.parts) if part
    ),
}
