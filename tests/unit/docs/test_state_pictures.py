"""Pictures of state machines: every transition is in them, and a feed's are those that the scenarios record."""

import re
from itertools import pairwise
from typing import Final

import pytest

from headgate.records.control import FeedState, WantedState
from headgate_lab.pages import feed_states
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
