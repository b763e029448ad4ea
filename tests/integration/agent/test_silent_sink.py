"""A sink that stops answering, without closing a connection, stops the tables of that sink and nothing else."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.services import mariadb_execute
from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.shell.figures import FeedFigures
from headgate.records.control import SpanPlan, TaskState
from headgate.records.error_codes import SINK_SLOW
from headgate.replication.executor import SparkExecutor
from headgate_lab.chaos.proxy import Link, Proxies
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

TABLES = 6
"""More than Spark has cores, so that the frozen sink's lane asks for all of them."""

GROWN_MS = 10_000
"""More than a batch takes that nothing holds up."""


class FreezingSink:
    """The sink of the feed ``frozen``. ``run`` is for statements to it, ``server`` its address in error messages."""

    def __init__(self, spec: dict[str, str], server: str, run: Callable[[str], list[tuple[Any, ...]]]) -> None:
        self.spec = spec
        self.server = server
        self.run = run
        self.freeze: Callable[[], None]
        self.thaw: Callable[[], None]

    def table(self, bed: Bed, name: str) -> SpanPlan:
        plan = bed.table(name, partitions=2)
        self.run(f"CREATE TABLE IF NOT EXISTS {name} (id bigint PRIMARY KEY, name text, qty int)")
        return plan

    def task(self, bed: Bed, plan: SpanPlan) -> SpanTask:
        made = bed.task(plan, 1)
        spec = msgspec.json.decode(made.spec) | {"feed": "frozen", "sink": self.spec}
        table = plan.table if self.spec["type"] == "postgresql" else plan.table.removeprefix("public.")
        text = msgspec.json.encode(spec).decode()
        return replace(made, id=SpanId("frozen", plan.span), feed_id="0-8", spec=text, plan=replace(plan, table=table))

    def count(self, plan: SpanPlan) -> int:
        ((count,),) = self.run(f"SELECT count(*) FROM {plan.span}")
        return int(count)


@contextmanager
def postgresql_behind_a_proxy(request: pytest.FixtureRequest) -> Iterator[FreezingSink]:
    """As behind a firewall that drops packets."""
    dsn = request.getfixturevalue("postgres_database")

    def run(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    with closing(Proxies()) as proxies:
        proxy = proxies.open(int(str(conninfo_to_dict(dsn)["port"])))
        address = make_conninfo(dsn, host="127.0.0.1", port=proxy.port)
        sink = FreezingSink({"type": "postgresql", "dsn": address}, f"127.0.0.1:{proxy.port}", run)
        sink.freeze = lambda: proxies.change(proxy, Link.SILENT)
        sink.thaw = lambda: proxies.change(proxy, Link.OPEN)
        yield sink


@contextmanager
def mariadb_stopped(request: pytest.FixtureRequest) -> Iterator[FreezingSink]:
    """The server's process stands still: the kernel accepts connections and acknowledges packets for it."""
    url = request.getfixturevalue("mariadb_database")
    parts = urlsplit(url)
    ((pid_file,),) = mariadb_execute(url, "SELECT @@pid_file")
    process = int(Path(pid_file).read_text(encoding="ascii"))
    sink = FreezingSink(
        {"type": "mysql", "dsn": url}, f"{parts.hostname}:{parts.port}", lambda text: mariadb_execute(url, text)
    )
    sink.freeze = lambda: os.kill(process, signal.SIGSTOP)
    sink.thaw = lambda: os.kill(process, signal.SIGCONT)
    try:
        yield sink
    finally:
        sink.thaw()


@pytest.fixture(
    params=[
        pytest.param(postgresql_behind_a_proxy, id="postgresql"),
        # That a MariaDB which is frozen counts as unavailable is in integration/sinks/test_mysql_trouble.py.
        pytest.param(mariadb_stopped, id="mariadb", marks=pytest.mark.long),
    ]
)
def freezing(request: pytest.FixtureRequest) -> Iterator[FreezingSink]:
    with request.param(request) as sink:
        yield sink


def added(bed: Bed, executor: SparkExecutor, task: SpanTask) -> None:
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)


def errors(executor: SparkExecutor, tasks: list[SpanTask]) -> set[str | None]:
    statuses = [executor.status(task.id) for task in tasks]
    return {None if status is None else status.error_code for status in statuses}


def lags_ms(executor: SparkExecutor) -> dict[str, int]:
    """What the agent's metric shows, by feed."""
    statuses = [executor.status(span) for span in executor.all_spans()]
    figures = FeedFigures()
    figures.note([status for status in statuses if status is not None])
    return figures.lag_ms


def applied(bed: Bed, plan: SpanPlan, rows: range) -> None:
    bed.put(plan, {number: {"name": "x", "qty": number} for number in rows})
    eventually(lambda: bed.rows(plan).keys() >= set(rows), f"{plan.span} has its rows")


def test_beside_a_frozen_sink_a_healthy_one_goes_on(bed: Bed, freezing: FreezingSink) -> None:
    executor, healthy = bed.executor(), bed.table("healthy")
    plans = [freezing.table(bed, f"frozen{number}") for number in range(TABLES)]
    tasks = [freezing.task(bed, plan) for plan in plans]
    for task in tasks:
        executor.add_table(task, prepare=False)
    for task in tasks:
        reached(executor, task.id, TaskState.REPLICATING)
    for plan in plans:
        bed.put(plan, {number: {"name": "x", "qty": number} for number in range(100)})
    for plan in plans:
        eventually(lambda plan=plan: freezing.count(plan) == 100, f"{plan.span} has its rows")  # type: ignore[misc]
    added(bed, executor, bed.task(healthy, 1))
    applied(bed, healthy, range(10))

    freezing.freeze()
    for plan in plans:
        bed.put(plan, {number: {"name": "y", "qty": number} for number in range(100, 1_000)})
    # Said after five seconds, and no more once all tasks have found out, which takes each at least 30 s.
    eventually(
        lambda: SINK_SLOW in errors(executor, tasks) and freezing.server in executor.silent_sinks,
        "a table says for which server it waits",
    )
    eventually(
        lambda: lags_ms(executor)["frozen"] >= GROWN_MS > lags_ms(executor)[bed.feed],
        "its feed's lag grows while its batches wait",
    )
    # Meanwhile others are written, and claims of other tables go on, too.
    applied(bed, healthy, range(10, 20))
    late = bed.table("late")
    added(bed, executor, bed.task(late, 1))
    applied(bed, late, range(10))

    eventually(
        lambda: errors(executor, tasks) == {"sink_unavailable"}, "the frozen sink's tables say why they stand still"
    )
    status = executor.status(tasks[0].id)
    assert status is not None
    assert freezing.server in str(status.error)
    applied(bed, healthy, range(20, 30))

    freezing.thaw()
    for plan in plans:
        eventually(lambda plan=plan: freezing.count(plan) == 1_000, "it goes on when the sink answers")  # type: ignore[misc]
