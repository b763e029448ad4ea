"""A span's machine: ``decide`` turns its state and an input into a new state and effects.

The states are in states.py, inputs and effects in inputs.py, which action answers which signal in
transitions.py, what each action makes in steps.py. A span's state is not in the log, so it has no ``evolve``:
``decide`` gives the new state, and nothing else makes one. The performer of an effect answers it with an input; timers
are inputs, too.
"""

from collections.abc import Callable
from typing import Any, Final

from headgate.agent.core.span import steps
from headgate.agent.core.span.inputs import SpanInput
from headgate.agent.core.span.states import Span, TaskPhase
from headgate.agent.core.span.steps import SpanStep
from headgate.agent.core.span.transitions import TRANSITIONS, TaskAction, signal_of
from headgate.runtime.table import UnknownTransitionError

ACTIONS: Final[dict[TaskAction, Callable[[Any, Any, float], SpanStep]]] = {
    action: getattr(steps, action.value) for action in TaskAction
}
"""Each action is the function of steps.py of its name."""


def decide(span: Span | None, given: SpanInput, now: float) -> SpanStep:
    """The step that ``given`` makes; ``now`` in monotonic seconds. Raises UnknownTransitionError, LowerEpochError."""
    phase, signal = TaskPhase.ABSENT if span is None else span.phase, signal_of(span, given)
    action = TRANSITIONS.get((phase, signal))
    if action is None:
        raise UnknownTransitionError(f"{signal} ({given}) for a span that is {phase}: {span}")
    return ACTIONS[action](span, given, now)
