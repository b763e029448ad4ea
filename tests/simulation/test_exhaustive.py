"""The search of every history of a small world: it finds nothing, and what it should find if a guard were gone."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.agent.core import transitions
from headgate.coordinator.core import replication
from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.spans import dividing, waiting
from headgate.records.spans import divide
from headgate_lab.simulation.exhaustive.bounds import SearchBounds
from headgate_lab.simulation.exhaustive.scopes import QUICK, Scope
from headgate_lab.simulation.exhaustive.search import search


@pytest.mark.parametrize("scope", QUICK, ids=str)
def test_no_history_breaks_a_guarantee(scope: Scope) -> None:
    result = search(scope.bounds, depth=scope.depth, states_max=scope.states_max)
    assert result.finding is None, (result.finding.message, result.finding.path)
    assert result.is_complete or result.depth == scope.depth
    assert result.states > 100


@pytest.fixture
def changed() -> Iterator[Any]:
    """Change entries of a machine's table for one test."""
    before: list[tuple[dict[Any, Any], Any, Any]] = []

    def change(table: dict[Any, Any], pair: Any, action: Any) -> None:
        before.append((table, pair, table[pair]))
        table[pair] = action

    yield change
    for table, pair, action in reversed(before):
        table[pair] = action


def test_a_secondary_promoted_before_the_primary_has_stopped_is_found(changed: Any) -> None:
    pair = (replication.SpanPhase.HANDOVER, replication.SpanSignal.PRIMARY_STOPPING)
    changed(replication.TRANSITIONS, pair, replication.SpanAction.PROMOTE)
    changed(
        replication.TRANSITIONS, (pair[0], replication.SpanSignal.PRIMARY_REPLICATING), replication.SpanAction.PROMOTE
    )
    finding = search(SearchBounds(commands=("move",), faults=0)).finding
    assert finding is not None
    assert "may" in finding.message or "reports" in finding.message


def test_an_agent_that_claims_as_a_secondary_is_found(changed: Any) -> None:
    pair = (None, transitions.Directive.PREPARE_ANEW)
    changed(transitions.TRANSITIONS, pair, transitions.SessionAction.REPLICATE)
    finding = search(SearchBounds(commands=("move",), faults=0)).finding
    assert finding is not None
    assert "sets out to claim" in finding.message


def test_a_span_called_sealed_when_its_agent_was_only_lost_is_found(changed: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(
        replication.ACTIONS, replication.SpanAction.ORPHAN, replication.ACTIONS[replication.SpanAction.SEAL_CLOSED]
    )
    finding = search(SearchBounds(commands=("pause",), faults=1), depth=22).finding
    assert finding is not None
    assert finding.message.startswith("1: ")


def test_a_span_called_sealed_when_its_drain_was_only_given_up_is_found(changed: Any) -> None:
    pair = (replication.SpanPhase.REMOVING, replication.SpanSignal.DEADLINE)
    changed(replication.TRANSITIONS, pair, replication.SpanAction.SEAL_CLOSED)
    finding = search(SearchBounds(commands=("pause",), faults=1), depth=22).finding
    assert finding is not None
    assert "is called sealed" in finding.message


def test_a_writer_that_is_passed_over_before_its_deadline_is_found(monkeypatch: Any) -> None:
    monkeypatch.setattr(waiting, "is_passed_over", lambda *_: True)
    finding = search(SearchBounds(commands=("move",), faults=1), depth=18).finding
    assert finding is not None
    assert "reports" in finding.message


def test_a_part_given_out_before_the_whole_is_sealed_is_found(monkeypatch: Any) -> None:
    monkeypatch.setattr(CoordinatorDraft, "is_covered", lambda *_: False)
    finding = search(SearchBounds(commands=("split",), faults=0, partitions=2)).finding
    assert finding is not None
    assert "is not sealed" in finding.message


def test_a_division_that_loses_a_partition_is_found(monkeypatch: Any) -> None:
    monkeypatch.setattr(dividing, "divide", lambda plan, parts: divide(plan, parts)[1:])
    finding = search(SearchBounds(commands=("split",), faults=0, partitions=2)).finding
    assert finding is not None
    assert "lost a partition" in finding.message


def test_a_lost_table_is_found(changed: Any) -> None:
    pair = (replication.SpanPhase.REPLICATING, replication.SpanSignal.PRIMARY_LOST)
    changed(replication.TRANSITIONS, pair, replication.SpanAction.WAIT)
    finding = search(SearchBounds(faults=1)).finding
    assert finding is not None
    assert finding.message.startswith("2: ")
