"""What is read at a scrape, and from whom."""

from headgate.agent.core.executor import SpanId, TaskStatus
from headgate.agent.shell.figures import FeedFigures
from headgate.agent.shell.service import AgentCounters
from headgate.observability.metrics import (
    AgentFeeds,
    AgentMemory,
    AgentMetrics,
    AgentRestraint,
    AgentStream,
    new_registry,
)
from headgate.records.control import Epoch, TaskState


def test_an_agents_memory_is_asked_for_at_each_scrape_by_process() -> None:
    registry = new_registry()
    sizes = {"driver": 5, "jvm": 0, "workers": 0}
    AgentMemory(registry, lambda: sizes)
    assert registry.get_sample_value("headgate_agent_memory_bytes", {"process": "driver"}) == 5
    sizes["jvm"] = 7
    assert registry.get_sample_value("headgate_agent_memory_bytes", {"process": "jvm"}) == 7


def test_a_feeds_counts_go_on_over_claims_and_its_lag_is_the_worst_tables() -> None:
    registry, figures = new_registry(), FeedFigures()
    AgentFeeds(registry, figures)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"headgate_feed_{name}", {"feed": "shop"})

    figures.note([_status("a", rows=5, lag_ms=10), _status("b", rows=1, lag_ms=1500)])
    assert (value("rows_total"), value("lag_seconds"), value("tables"), value("failures_total")) == (6, 1.5, 2, 0)
    figures.note([_status("a", rows=7), _status("b", rows=1, error="it stuck")])
    figures.note([_status("a", rows=7), _status("b", rows=1, error="it stuck")])
    assert (value("rows_total"), value("failures_total")) == (8, 1)
    figures.note([_status("a", rows=2, epoch=2)])
    assert (value("rows_total"), value("bytes_total"), value("tables")) == (10, 100, 1), "a new claim counts from 0"
    figures.note([])
    assert (value("rows_total"), value("lag_seconds")) == (10, None)


def test_a_table_that_is_copied_has_not_failed() -> None:
    figures = FeedFigures()
    figures.note([_status("a", rows=0, error="5 rows are copied", error_code="copying")])
    assert (figures.copying, figures.rows_copied, figures.failures) == ({"shop": 1}, {"shop": 5}, {"shop": 0})
    figures.note([_status("a", rows=0, error="5 rows are copied; it stuck", error_code="copying_held")])
    assert (figures.copying, figures.failures) == ({"shop": 1}, {"shop": 1})


def test_a_table_that_has_not_claimed_does_not_say_that_all_is_read() -> None:
    registry, figures = new_registry(), FeedFigures()
    AgentFeeds(registry, figures)

    def lag() -> float | None:
        return registry.get_sample_value("headgate_feed_lag_seconds", {"feed": "shop"})

    for state in (TaskState.PREPARING, TaskState.PREPARED):
        figures.note([_status("a", rows=0, state=state)])
        assert lag() is None, state
        figures.note([_status("a", rows=0, state=state), _status("b", rows=1, lag_ms=1500)])
        assert lag() == 1.5, state
    figures.note([_status("a", rows=0)])
    assert lag() == 0


def _status(
    span: str,
    *,
    rows: int,
    lag_ms: int = 0,
    error: str | None = None,
    error_code: str = "sink",
    epoch: int = 1,
    state: TaskState = TaskState.REPLICATING,
) -> TaskStatus:
    return TaskStatus(
        id=SpanId("shop", span),
        feed_id="f1",
        epoch=Epoch(0, epoch),
        state=state,
        positions={0: rows},
        seen_ts=None,
        rows=rows,
        bytes=10 * rows,
        lag_ms=lag_ms,
        error_code=error and error_code,
        error=error,
        retryable=True,
    )


def test_an_agents_counters_are_counters() -> None:
    registry, counters = new_registry(), AgentCounters(sessions_lost=2)
    AgentMetrics(registry, lambda name: float(getattr(counters, name)))
    assert registry.get_sample_value("headgate_agent_sessions_lost_total") == 2
    assert {family.name: family.type for family in registry.collect()}["headgate_agent_sessions_lost"] == "counter"


def test_what_came_through_sparks_queries_is_told_with_the_time_of_their_steps() -> None:
    registry = new_registry()
    said: dict[str, object] = {"rows": 9, "batches": 2, "behind_rows": 4, "step_ms": {"addBatch": 1500}}
    AgentStream(registry, lambda: said)
    assert registry.get_sample_value("headgate_spark_input_rows_total") == 9
    assert registry.get_sample_value("headgate_spark_behind_rows") == 4
    assert registry.get_sample_value("headgate_spark_step_seconds_total", {"step": "addBatch"}) == 1.5
    said["behind_rows"] = None
    assert registry.get_sample_value("headgate_spark_behind_rows") is None, "unknown is not none"


def test_what_keeps_an_agent_from_full_speed_is_told() -> None:
    registry = new_registry()
    now: dict[str, object] = {}
    AgentRestraint(registry, lambda: now)
    assert registry.get_sample_value("headgate_spark_poll_records") is None
    now.update(memory_failures=2, poll_records=1, silent_sinks={"db:5432": 41.5})
    assert registry.get_sample_value("headgate_spark_out_of_memory_total") == 2
    assert registry.get_sample_value("headgate_spark_poll_records") == 1
    assert registry.get_sample_value("headgate_sink_silent_seconds", {"server": "db:5432"}) == 41.5
