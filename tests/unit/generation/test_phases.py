"""The table of a generation's phases: every pair has an entry, and what cannot be raises."""

from itertools import product

import pytest

from headgate.generation.changelog.core.phases import (
    TRANSITIONS,
    SwitchAction,
    SwitchPhase,
    SwitchSignal,
    action_for,
)
from headgate.records.generation import GenerationPhase
from headgate.runtime.table import UnknownTransitionError


def test_every_pair_has_an_entry() -> None:
    assert set(TRANSITIONS) == set(product(SwitchPhase, SwitchSignal))
    assert set(TRANSITIONS.values()) == set(SwitchAction)
    assert {phase.value for phase in SwitchPhase} == {"none", *(phase.value for phase in GenerationPhase)}


@pytest.mark.parametrize(("phase", "signal"), sorted(TRANSITIONS))
def test_what_cannot_be_raises(phase: SwitchPhase, signal: SwitchSignal) -> None:
    recorded = None if phase is SwitchPhase.NONE else GenerationPhase(phase.value)
    if TRANSITIONS[phase, signal] is SwitchAction.NEVER:
        with pytest.raises(UnknownTransitionError, match=f"{signal.value} cannot happen"):
            action_for(recorded, signal)
    else:
        assert action_for(recorded, signal) is TRANSITIONS[phase, signal]


def test_a_committed_generation_is_never_taken_back() -> None:
    for phase in (SwitchPhase.COMMITTED, SwitchPhase.CLOSING, SwitchPhase.SUPERSEDED, SwitchPhase.DRAINED):
        assert TRANSITIONS[phase, SwitchSignal.ABANDONED] in (SwitchAction.WAIT, SwitchAction.NEVER)
