"""A sink that stops answering, without closing a connection, stops the tables of that sink and nothing else."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.records.control import SpanPlan, TaskState
from headgate.replication.executor import SparkExecutor
from headgate_lab.chaos.proxy import Link, Proxies
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

TABLES = 6
"""More than Spark has cores, so that the frozen sink's lane asks for all of them."""


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    made = Proxies()
    yield made
    made.close()


def through(task: SpanTask, dsn: str, port: int) -> SpanTask:
    """The task as another feed's, whose sink is reached through the proxy at ``port``."""
    spec = task.spec.replace(dsn, make_conninfo(dsn, host="127.0.0.1", port=port)).replace(task.id.feed, "frozen")
    assert spec != task.spec
    return replace(task, id=SpanId("frozen", task.id.span), feed_id="0-8", spec=spec)


def added(bed: Bed, executor: SparkExecutor, task: SpanTask) -> None:
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)


def errors(executor: SparkExecutor, tasks: list[SpanTask]) -> set[str | None]:
    statuses = [executor.status(task.id) for task in tasks]
    return {None if status is None else status.error_code for status in statuses}


def applied(bed: Bed, plan: SpanPlan, rows: range) -> None:
    bed.put(plan, {number: {"name": "x", "qty": number} for number in rows})
    eventually(lambda: bed.rows(plan).keys() >= set(rows), f"{plan.span} has its rows")


def test_beside_a_frozen_sink_a_healthy_one_goes_on(bed: Bed, proxies: Proxies) -> None:
    proxy = proxies.open(int(str(conninfo_to_dict(bed.dsn)["port"])))
    executor, healthy = bed.executor(), bed.table("healthy")
    plans = [bed.table(f"frozen{number}", partitions=2) for number in range(TABLES)]
    tasks = [through(bed.task(plan, 1), bed.dsn, proxy.port) for plan in plans]
    for task in tasks:
        executor.add_table(task, prepare=False)
    for task in tasks:
        reached(executor, task.id, TaskState.REPLICATING)
    for plan in plans:
        applied(bed, plan, range(100))
    added(bed, executor, bed.task(healthy, 1))
    applied(bed, healthy, range(10))

    proxies.change(proxy, Link.SILENT)
    for plan in plans:
        bed.put(plan, {number: {"name": "y", "qty": number} for number in range(100, 1_000)})
    # While nobody has found out yet, which takes a task at least 30 s, and claims of other tables go on, too.
    applied(bed, healthy, range(10, 20))
    late = bed.table("late")
    added(bed, executor, bed.task(late, 1))
    applied(bed, late, range(10))
    assert errors(executor, tasks) == {None}, "it was found out before the healthy tables were served"

    eventually(
        lambda: errors(executor, tasks) == {"sink_unavailable"}, "the frozen sink's tables say why they stand still"
    )
    status = executor.status(tasks[0].id)
    assert status is not None
    assert f"127.0.0.1:{proxy.port}" in str(status.error)
    applied(bed, healthy, range(20, 30))

    proxies.change(proxy, Link.OPEN)
    for plan in plans:
        eventually(lambda plan=plan: len(bed.rows(plan)) == 1_000, "it goes on when the sink answers")  # type: ignore[misc]
