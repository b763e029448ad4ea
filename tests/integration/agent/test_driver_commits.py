"""A real lane into a sink of another package that commits on the driver, with kills and an overtaken driver.

The sink is docs/extending.md's, whose table is the fold of its files: a row of every change that was ever committed.
"""

import importlib
import json
import os
import re
import signal
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headgate.agent.core.executor import SpanTask
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.config.plugs import SINKS
from headgate.records.control import SpanPlan, TaskState
from headgate.replication import commits
from headgate.replication.spark import SparkRuntime
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

MODULES = r"`(headgate_\w+_lines\.py)`[^`]*(?:`[^`]+`[^`]*)?```python\n(.*?)```"
PAGE = Path(__file__).parents[3] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, spark_runtime: SparkRuntime) -> Iterator[Path]:
    """The page's package as an archive, which workers get from Spark, as by ``spark-submit --py-files``."""
    archive = tmp_path_factory.mktemp("outside") / "headgate_json_lines.zip"
    page = PAGE.read_text()
    with zipfile.ZipFile(archive, "w") as package:
        for name, code in re.findall(MODULES, page, re.DOTALL):
            package.writestr(name, code)
        info = "headgate_json_lines-1.0.dist-info"
        package.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: headgate-json-lines\nVersion: 1.0\n")
        package.writestr(f"{info}/entry_points.txt", "[headgate.sinks]\nstaged-lines = headgate_staged_lines:SINK\n")
    names = [member.removesuffix(".py") for member in zipfile.ZipFile(archive).namelist() if member.endswith(".py")]
    sys.path.insert(0, str(archive))
    importlib.invalidate_caches()
    spark_runtime.start().sparkContext.addPyFile(str(archive))
    yield archive
    sys.path.remove(str(archive))
    for name in names:
        sys.modules.pop(name, None)
    SINKS.forget("staged-lines")


@pytest.fixture
def folder(outside: Path, tmp_path: Path) -> Path:
    return tmp_path


def plan_of(bed: Bed, folder: Path, name: str, partitions: int = 1) -> SpanPlan:
    plan = bed.table(name, partitions)
    (folder / f"{plan.table}.key").write_text("id")
    return plan


def committed(folder: Path) -> list[int]:
    """The id of every row that was ever committed, as often as it was."""
    facts = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return sorted(fact[2][0] for fact in facts if fact[0] == "row")


def put(bed: Bed, plan: SpanPlan, numbers: range) -> None:
    bed.put(plan, {number: {"name": "x", "qty": number} for number in numbers})


def task_of(bed: Bed, folder: Path, plan: SpanPlan, n: int) -> SpanTask:
    task = bed.task(plan, n)
    spec = msgspec.json.decode(task.spec) | {"sink": {"type": "staged-lines", "dsn": f"staged-jsonl://{folder}"}}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())


def test_rows_of_all_partitions_and_tables_are_committed_by_the_driver(bed: Bed, folder: Path) -> None:
    plans = [plan_of(bed, folder, "orders", partitions=3), plan_of(bed, folder, "items")]
    executor = bed.executor()
    for plan in plans:
        put(bed, plan, range(30))
        executor.add_table(task_of(bed, folder, plan, 1), prepare=False)
    eventually(lambda: committed(folder) == sorted([*range(30)] * 2), "both tables come over")
    bed.put(plans[0], {7: None})
    task = task_of(bed, folder, plans[0], 1)
    ends = {0: 10, 1: 11, 2: 10}
    eventually(lambda: executor.status(task.id).positions == ends, "the driver reports it")  # type: ignore[union-attr]
    executor.remove_table(task.id, seal=True)
    eventually(lambda: executor.is_remove_table_finished(task.id) == ends, "and seals what it committed")


@pytest.mark.parametrize("point", [CrashPoint.ROWS_SENT])
def test_a_batch_whose_worker_dies_once_it_has_staged_is_committed_once(
    bed: Bed, folder: Path, worker_points: ArmedPoints, point: CrashPoint
) -> None:
    plan = plan_of(bed, folder, "mortal")
    executor, task = bed.executor(), task_of(bed, folder, plan, 1)
    put(bed, plan, range(20))
    executor.add_table(task, prepare=False)
    eventually(lambda: committed(folder) == [*range(20)], "it writes")

    worker_points.arm(point)
    put(bed, plan, range(20, 50))
    os.kill(worker_points.await_reached(point, DEADLINE_SECONDS), signal.SIGKILL)
    put(bed, plan, range(50, 60))
    eventually(lambda: executor.status(task.id).positions == {0: 60}, "another worker goes on")  # type: ignore[union-attr]
    assert committed(folder) == [*range(60)]


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED])
def test_a_driver_that_was_overtaken_while_it_stood_still_commits_nothing_more(
    bed: Bed, folder: Path, monkeypatch: pytest.MonkeyPatch, point: CrashPoint
) -> None:
    plan = plan_of(bed, folder, "overtaken")
    old, new, task = bed.executor(), bed.executor(), task_of(bed, folder, plan, 1)
    stands, may_go_on = threading.Event(), threading.Event()

    def stand_still(passed: CrashPoint) -> None:
        if passed is point and not stands.is_set():
            stands.set()
            assert may_go_on.wait(DEADLINE_SECONDS)

    monkeypatch.setattr(commits, "reach", stand_still)
    put(bed, plan, range(20))
    old.add_table(task, prepare=False)
    try:
        assert stands.wait(DEADLINE_SECONDS)
        new.add_table(task_of(bed, folder, plan, 2), prepare=False)
        reached(new, task.id, TaskState.REPLICATING)
        put(bed, plan, range(20, 30))
        eventually(lambda: committed(folder) == [*range(30)], "the new one has claimed and goes on")
    finally:
        may_go_on.set()
    put(bed, plan, range(30, 40))
    eventually(lambda: old.status(task.id).state is TaskState.FAILED, "the old one is told")  # type: ignore[union-attr]
    assert old.status(task.id).error_code == "sink_fenced"  # type: ignore[union-attr]
    eventually(lambda: committed(folder) == [*range(40)], "and nothing is written twice")
    assert reached(new, task.id, TaskState.REPLICATING)
