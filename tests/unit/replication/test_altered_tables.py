"""When an agent alters a table of the sink: if the feed says so, for what a batch has lacked, and not for ever."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span.states import Phase, Span
from headgate.config.feed import parse_feed
from headgate.records.control import Epoch, SpanPlan
from headgate.replication import altered_tables
from headgate.replication.altered_tables import alter_table
from headgate.replication.span_table import FAILURES_BORNE
from headgate.tables.alteration import Alteration
from headgate.tables.evolution import StillRefusedError

PLAN = SpanPlan(span="s.t", topic="t", table="s.t", start={0: 0})
TASK = SpanTask(SpanId("f", "s.t"), "0-1", 1, Epoch(1, 1), PLAN, "{}")
FEED = """
feed: f
source: {topics: [t], database: {dsn: dbname=x}}
sink: {type: postgresql, dsn: dbname=y, tables: %s}
on_bad_change: %s
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """What was to be added."""
    found: list[Mapping[str, str]] = []

    def add(_spec: Any, _plan: Any, lacking: Mapping[str, str], _said: Any) -> tuple[str, ...]:
        found.append(lacking)
        return tuple(lacking)

    def fit(*_: Any) -> Alteration:
        found.append({})
        return Alteration(name="s.t", schema="s", refusals=("Run this",))

    monkeypatch.setattr(altered_tables, "add_columns", add)
    monkeypatch.setattr(altered_tables, "fit_columns", fit)
    return found


REFUSED = ("value_refused", "the value", True)


def run(tables: str, on_bad_change: str = "fail", failures: int = 1, *, is_refused: bool = False) -> None:
    span = Span(TASK, 1, primary=True, phase=Phase.OPENING, since=0.0, failures={0: failures})
    span = replace(span, error=REFUSED) if is_refused else replace(span, lacking={"c": "int32"})
    parts = SimpleNamespace(spec=parse_feed(FEED % (tables, on_bad_change)))
    alter_table(None, parts, span)  # type: ignore[arg-type]


def test_a_feed_that_evolves_its_tables_adds_what_a_batch_has_lacked(asked: list[Mapping[str, str]]) -> None:
    run("evolve")
    assert asked == [{"c": "int32"}]


@pytest.mark.parametrize("tables", ["create", "existing"])
def test_other_feeds_wait_for_somebody_to_alter_the_table(asked: list[Mapping[str, str]], tables: str) -> None:
    run(tables)
    assert asked == []


def test_a_change_that_may_be_set_aside_is_not_held_for_ever(asked: list[Mapping[str, str]]) -> None:
    run("evolve", "quarantine", FAILURES_BORNE - 1)
    assert len(asked) == 1
    run("evolve", "quarantine", FAILURES_BORNE)
    assert len(asked) == 1
    run("evolve", "fail", FAILURES_BORNE)
    assert len(asked) == 2


def test_a_value_that_is_refused_is_tried_once_more_and_then_stays_refused(asked: list[Mapping[str, str]]) -> None:
    run("evolve", failures=1, is_refused=True)
    with pytest.raises(StillRefusedError, match=r"^the value\. Run this$") as refused:
        run("evolve", failures=2, is_refused=True)
    assert (refused.value.code, refused.value.retryable) == ("value_refused", False)
    assert asked == [{}, {}]


def test_a_feed_that_does_not_evolve_asks_nobody_about_a_value(asked: list[Mapping[str, str]]) -> None:
    run("create", failures=9, is_refused=True)
    assert asked == []
