"""Pictures of state machines: every transition is in them, and a feed's are those that the scenarios record."""

import re
from itertools import pairwise
from typing import Final

import pytest

from headgate.agent.core.span.states import TaskPhase
from headgate.agent.core.span.transitions import TRANSITIONS, TaskSignal, signal_of
from headgate.records.control import FeedState, TaskState, WantedState
from headgate_lab.pages import agent_states, feed_states
from headgate_lab.pages.agent_states import steps
from headgate_lab.pages.state_chart import chart
from support.pages import ROOT

SCENARIOS: Final = sorted((ROOT / "tests" / "scenarios").glob("*.txt"))
RECORD: Final = re.compile(r"changefeed (\S+): (?:(deleted)|\S+ wanted (\w+), is (\w+))")


def transitions(trace: str) -> set[tuple[str, str]]:
    """(phase, next phase) of every feed of a trace."""
    phases: dict[str, list[str]] = {}
    for feed, deleted, wanted, state in RECORD.findall(trace):
        seen = phases.setdefault(feed, ["none"])
        seen.append("deleted" if deleted else feed_states.phase_of(WantedState(wanted), FeedState(state)))
        if deleted and seen[-2] == "none":
            del seen[-1]  # there was none
    return {(a, b) for seen in phases.values() for a, b in pairwise(seen) if a not in (b, "deleted")}


@pytest.fixture(scope="module")
def recorded() -> set[tuple[str, str]]:
    return {each for path in SCENARIOS for each in transitions(path.read_text(encoding="utf-8"))}


def test_the_picture_of_a_feed_has_the_transitions_that_scenarios_record(recorded: set[tuple[str, str]]) -> None:
    assert {edge[:2] for edge in feed_states.EDGES} == recorded


def test_a_feed_has_the_states_of_its_records() -> None:
    known = {feed_states.phase_of(wanted, state) for wanted in WantedState for state in FeedState}
    # A record says `removed` of no feed: its key is deleted instead.
    assert known - {FeedState.REMOVED.value, "none"} <= set(feed_states.STATES)


def test_every_transition_has_an_arrow_with_its_inputs() -> None:
    drawn = chart("one", "One", ["a", "b"], [("a", "b", "x"), ("b", "a", "y & z"), ("a", "b", "w")])
    assert drawn.count("marker-end=") == 2
    assert ">x, w<" in drawn
    assert ">y &amp; z<" in drawn


def test_a_state_that_is_not_known_is_an_error() -> None:
    with pytest.raises(KeyError):
        chart("one", "One", ["a"], [("a", "b", "x")])


def test_the_pictures_of_an_agent_come_from_steps_that_reach_its_whole_table() -> None:
    """A new line of the table that no input reaches here would be missing in the pictures."""
    met = {(TaskPhase.ABSENT if span is None else span.phase, signal_of(span, given)) for span, given, _ in steps()}
    assert set(TRANSITIONS) - met == set()


def test_the_pictures_of_an_agent_have_every_state_and_what_leads_there() -> None:
    running, ending = set(agent_states.running_edges()), set(agent_states.ending_edges())
    assert {("opening", "waiting", "opened"), ("claimed", "writing", "planned")} <= running
    assert {("writing", "draining", "seal"), ("free", "stopped", "stop"), ("calling", "recalled", "stop")} <= ending
    drawn = {state for edge in running | ending for state in edge[:2]}
    assert drawn == {phase.value for phase in TaskPhase} | {"free", "calling"}
    tasks = agent_states.session_edges()
    assert ("prepared", "preparing", "replicate_anew") in tasks
    assert {state for edge in tasks for state in edge[:2]} == {"absent", *(state.value for state in TaskState)}


def test_states_that_are_drawn_as_one_are_ended_in_the_same_way() -> None:
    ends: dict[TaskPhase, set[tuple[str, str]]] = {}
    for span, given, after in steps():
        signal = None if span is None else signal_of(span, given)
        if span is not None and after is not None and signal in (TaskSignal.SEAL, TaskSignal.STOP):
            ends.setdefault(span.phase, set()).add((signal.value, after.phase.value))
    for group in (agent_states.FREE, agent_states.CALLING):
        assert len({frozenset(ends[phase]) for phase in group}) == 1
