"""An agent whose tasks run on a Spark cluster of other processes, whose Python has never heard of Headgate."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from fixtures.spark_cluster import SparkCluster, python_without
from headgate.app.exit_codes import ExitCode
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import ANSWER_SECONDS, ROWS, Service, replicate
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture
def spark_master(tmp_path: Path) -> Iterator[str]:
    """A standalone master and one worker with two cores; its address."""
    with SparkCluster(tmp_path / "cluster", eventually) as cluster:
        cluster.add_worker(cores=2)
        yield cluster.master


@pytest.mark.long
@pytest.mark.timeout(scaled_seconds(600))
def test_tasks_run_on_executors_that_are_sent_the_package(
    *,
    spark_master: str,
    shop_file: Path,
    serve: Callable[..., Service],
    spark_jars: tuple[Path, ...],
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    python = python_without(tmp_path)
    alone = subprocess.run([python, "-m", "headgate"], capture_output=True, text=True, check=False, cwd="/", env={})
    assert "No module named headgate" in alone.stderr, "else the test would show nothing"
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
    monkeypatch.setenv("HEADGATE_SPARK__MASTER", spark_master)
    monkeypatch.setenv("HEADGATE_SPARK__CORES", "2")

    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "the coordinator is ready", seconds=300)
    replicate(node, shop_file)
    with psycopg.connect(postgres_database) as database:
        query = "SELECT count(*) FROM orders o JOIN src.orders s ON (o.id, o.what) = (s.id, s.what)"
        assert database.execute(query).fetchone() == (ROWS,)
    assert list((tmp_path / "cluster").glob("worker-0/app-*/*/headgate-*.zip")), "the executor has it from the driver"

    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(ANSWER_SECONDS) == 0, node.log_file.read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.timeout(scaled_seconds(600))
@pytest.mark.parametrize(
    ("hidden", "version", "said"),
    [
        ("msgspec", "", "ended with ModuleNotFoundError"),
        ("psycopg", "", "ended with ModuleNotFoundError"),
        ("", "3.12", "PYTHON_VERSION_MISMATCH"),
    ],
)
def test_an_executor_that_lacks_what_tasks_need_is_said_at_the_start(
    hidden: str,
    version: str,
    said: str,
    *,
    shop_file: Path,
    serve: Callable[..., Service],
    spark_jars: tuple[Path, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    python = python_without(tmp_path, *filter(None, [hidden]), version=version)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
    monkeypatch.setenv("HEADGATE_SPARK__MASTER", "local-cluster[1,1,1024]")
    agent = serve("agent", "agent", "--name", "a1")
    assert agent.process.wait(scaled_seconds(240)) == ExitCode.SPARK, agent.log_file.read_text(encoding="utf-8")
    log = agent.log_file.read_text(encoding="utf-8")
    (line,) = [line for line in log.splitlines() if "a first job failed" in line]
    assert said in line
    assert hidden in line
    assert f"its Python is {python} and must be 3.11" in line
