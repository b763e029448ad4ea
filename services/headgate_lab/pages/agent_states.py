"""The transitions of a span in an agent, for its pictures: found by giving every input to every state that is reached.

The machine itself is run (agent/core/span), so a picture has what can happen and nothing else. States that differ in
nothing that decides a transition count as one.
"""

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Final

from headgate.agent.core import transitions as session
from headgate.agent.core.executor import CopyOrder, SpanId, SpanTask
from headgate.agent.core.span import inputs
from headgate.agent.core.span.failures import worst
from headgate.agent.core.span.machine import decide
from headgate.agent.core.span.states import OVER, Span, TaskPhase
from headgate.agent.core.span.transitions import LowerEpochError, TaskSignal, signal_of
from headgate.records.control import Epoch, SpanPlan
from headgate.runtime.table import UnknownTransitionError
from headgate_lab.pages.state_chart import Edge

__all__ = ["CALLING", "FREE", "ending_edges", "running_edges", "session_edges", "steps"]

_EPOCHS: Final = (Epoch(1, 1), Epoch(1, 2))

_FAILURES_MAX: Final = 1
"""So that a failure which is retried and the last one are both near."""

FREE: Final = (TaskPhase.WAITING, TaskPhase.READING, TaskPhase.CLAIMED, TaskPhase.RETRYING)
"""Neither a call nor a batch has the span: it is ended at once."""

CALLING: Final = (TaskPhase.OPENING, TaskPhase.CLAIMING, TaskPhase.SETTLING)
"""A call to source or sink is under way, whose answer is waited for."""

_ENDING: Final = (TaskPhase.DRAINING, TaskPhase.RECALLED, TaskPhase.SEALING, TaskPhase.RESEALING, TaskPhase.STOPPED)

_FROM_EVERYWHERE: Final = frozenset({TaskSignal.ADD, TaskSignal.CLOSE})
"""Lead from every state to the same one; drawn only where nothing is run."""

_Step = tuple[Span | None, inputs.SpanInput, Span | None]


def _task(epoch: Epoch) -> SpanTask:
    plan, copy = SpanPlan("public.t", "t", "public.t", {0: 0}), CopyOrder("r", "")
    return SpanTask(SpanId("shop", "public.t"), "f", 0, epoch, plan, "{}", copy)


def _result(*, retryable: bool) -> inputs.SpanResult:
    return inputs.SpanResult(
        id=SpanId("shop", "public.t"),
        positions={},
        rows=1,
        bytes=1,
        oldest_append_ms=None,
        newest_source_ms=None,
        visible_ms=1,
        error_code="x",
        error="x",
        retryable=retryable,
        decode_cpu_us=1,
        apply_cpu_us=1,
    )


def _requests() -> Iterator[inputs.SpanInput]:
    for epoch in _EPOCHS:
        for primary in (False, True):
            yield inputs.Add(_task(epoch), primary, 1, _FAILURES_MAX)
        yield inputs.Close(_task(epoch), 1)
    yield from (inputs.Remove(seal=True), inputs.Remove(seal=False), inputs.Forget())


def _facts() -> Iterator[inputs.SpanInput]:
    for epoch in _EPOCHS:
        for primary in (False, True):
            yield inputs.Opened(epoch, primary, {0: 0}, copying="half")
    for retryable in (False, True):
        yield inputs.CallFailed("x", "x", retryable)
        yield inputs.Failed("x", "x", retryable)
        yield inputs.BatchOver(_result(retryable=retryable), {})
        yield inputs.LaneLost("x", alone=retryable)
    yield from (inputs.Settled({0: 0}), inputs.Sealed({0: 0}), inputs.BatchOver(None, {}), inputs.Passed({}))
    yield from (inputs.Placed("l"), inputs.Served(), inputs.Planned(), inputs.SentBack("x"))
    yield from (inputs.RetryDue(), inputs.SettleDue(), inputs.MaintainDue(), inputs.CopyDue(), inputs.CopiedOn("half"))
    # These change no state. What they are about was opened at another time, so they change nothing else either.
    yield from (inputs.Looked(-1, {}), inputs.Completed(-1, 0), inputs.Limited(-1, {}, {}, 0))
    yield from (inputs.Slowed(0.0), inputs.DropCopy("other"), inputs.MaintainFor("r"))


_FACTS: Final = tuple(_facts())
_INPUTS: Final = (*_requests(), *_FACTS)


def _key(span: Span | None) -> object:
    """What decides the transitions of a span; the rest of its state does not."""
    if span is None:
        return None
    failures = min(worst(span.failures), _FAILURES_MAX + 1)
    more = (span.served, span.claimed, span.lane is None, failures)
    return span.phase, span.primary, span.stop, span.task.epoch, span.error is None, more


@cache
def steps() -> tuple[_Step, ...]:
    """Every step from every state that can be reached."""
    found: list[_Step] = []
    known, due = {_key(None)}, deque[Span | None]([None])
    while due:
        span = due.popleft()
        for given in _INPUTS:
            after = _after(span, given)
            if isinstance(after, str):
                continue
            found.append((span, given, after))
            if _key(after) not in known:
                known.add(_key(after))
                due.append(after)
    return tuple(found)


def _after(span: Span | None, given: inputs.SpanInput) -> Span | str | None:
    """The state behind an input; a text if it cannot meet that state."""
    try:
        return decide(span, given, 0.0).span
    except (UnknownTransitionError, LowerEpochError) as error:
        return str(error)


def _phase(span: Span | None) -> TaskPhase:
    return TaskPhase.ABSENT if span is None else span.phase


def _edges() -> Iterator[tuple[TaskPhase, TaskPhase, TaskSignal]]:
    seen = {(_phase(a), _phase(b), signal_of(a, given)) for a, given, b in steps()}
    order = list(TaskPhase)
    for start, end, signal in sorted(seen, key=lambda edge: (order.index(edge[0]), order.index(edge[1]), edge[2])):
        if start is end or (signal in _FROM_EVERYWHERE and start is not TaskPhase.ABSENT and start not in OVER):
            continue
        yield start, end, signal


def running_edges() -> list[Edge]:
    """Transitions between states in which a span is run, or will be."""
    return [
        (a.value, b.value, signal.value)
        for a, b, signal in _edges()
        if not {a, b} & {*_ENDING[:-1]} and signal not in (TaskSignal.SEAL, TaskSignal.STOP)
    ]


def ending_edges() -> list[Edge]:
    """Transitions that end a span. States that are ended in the same way count as one."""
    found = dict.fromkeys(
        (_group(a), _group(b), signal.value) for a, b, signal in _edges() if b in _ENDING or a in _ENDING[:-1]
    )
    return list(found)


def _group(phase: TaskPhase) -> str:
    return "free" if phase in FREE else "calling" if phase in CALLING else phase.value


def session_edges() -> list[Edge]:
    """(task state, next one, directive), and what the executor reports by itself, by its signal."""
    found: dict[Edge, None] = {}
    spans = {_key(span): span for span, _, _ in steps()}.values()
    for span in spans:
        for directive in session.Directive:
            for state in _directed(span, directive):
                found[_state(span), state, directive.value] = None
    for span, given, after in steps():
        if given in _FACTS:
            found[_state(span), _state(after), f"({signal_of(span, given).value})"] = None
    return [edge for edge in found if edge[0] != edge[1]]


def _directed(span: Span | None, directive: session.Directive) -> Iterator[str]:
    """The state behind a directive, if it can be given in this one."""
    action = session.TRANSITIONS.get((None if span is None else span.state, directive))
    if action is session.SessionAction.SAY_STOPPED:
        yield "stopped"
    given = None if action is None else _asked(span, directive, action)
    after = span if given is None else _after(span, given)
    if given is not None and not isinstance(after, str):
        yield _state(after)


def _asked(span: Span | None, directive: session.Directive, action: session.SessionAction) -> inputs.SpanInput | None:
    """What the session gives to its executor for an action."""
    is_new = directive.value.endswith("_anew") or directive is session.Directive.CLOSE
    epoch = _EPOCHS[is_new] if span is None else Epoch(1, span.task.epoch.n + is_new)
    match action:
        case session.SessionAction.PREPARE | session.SessionAction.REPLICATE:
            return inputs.Add(_task(epoch), action is session.SessionAction.REPLICATE, 1, _FAILURES_MAX)
        case session.SessionAction.CLOSE:
            return inputs.Close(_task(epoch), 1)
        case session.SessionAction.SEAL | session.SessionAction.STOP:
            return inputs.Remove(seal=action is session.SessionAction.SEAL)
        case session.SessionAction.FORGET:
            return inputs.Forget()
        case _:
            return None


def _state(span: Span | None) -> str:
    return "absent" if span is None else span.state.value
