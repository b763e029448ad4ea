"""An agent whose tasks run on a Spark cluster of other processes, whose Python has never heard of Headgate."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pyspark
import pytest

from headgate.embedded.java import java_home_for_spark
from headgate.embedded.jvm import pyspark_jars, tail
from headgate.embedded.ports import HOST, free_ports
from integration.cli.conftest import ROWS, Service, eventually, headgate

pytestmark = [pytest.mark.integration, pytest.mark.spark]

LAUNCHER = """\
import runpy, sys
sys.path[0:1] = []
sys.path += {searched!r}
assert sys.argv[1] == "-m"
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Run with -S, or the interpreter would read the .pth file by which a checkout is installed."""


@pytest.fixture
def spark_master(tmp_path: Path) -> Iterator[str]:
    """A standalone master and one worker with two cores; its address."""
    port, web, worker_web = free_ports(3)
    master = f"spark://{HOST}:{port}"
    java = java_home_for_spark() / "bin" / "java"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HEADGATE_"))}
    environment |= {
        "JAVA_HOME": str(java.parent.parent),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SCALA_VERSION": "2.13",  # Spark's own scripts set it; without it no executor is started
    }
    commands = {
        "Master": ["--host", HOST, "--port", str(port), "--webui-port", str(web)],
        "Worker": ["--host", HOST, "--webui-port", str(worker_web), "--cores", "2", "--memory", "1g",
                   "--work-dir", str(tmp_path / "work"), master],
    }  # fmt: skip
    with ExitStack() as stack:
        for role, arguments in commands.items():
            log = stack.enter_context((tmp_path / f"{role}.log").open("wb"))
            command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{pyspark_jars()}/*"]
            command += [f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments]
            process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            stack.callback(process.kill)
        file = tmp_path / "Worker.log"
        eventually(lambda: "Successfully registered with master" in file.read_text(), f"worker: {tail(file)}", 120)
        yield master


@pytest.mark.timeout(600)
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
    python = tmp_path / "executor-python"
    searched = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER.format(searched=searched), encoding="utf-8")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S {launcher} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    alone = subprocess.run([python, "-m", "headgate"], capture_output=True, text=True, check=False, cwd="/", env={})
    assert "No module named headgate" in alone.stderr, "else the test would show nothing"
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
    monkeypatch.setenv("HEADGATE_SPARK__MASTER", spark_master)
    monkeypatch.setenv("HEADGATE_SPARK__CORES", "2")

    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "the coordinator is ready", seconds=180)
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr

    def applied() -> bool:
        assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
        (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return bool(row["state"] == "replicating" and row["rows"] == ROWS)

    eventually(applied, "all rows are applied", seconds=300)
    with psycopg.connect(postgres_database) as database:
        query = "SELECT count(*) FROM orders o JOIN src.orders s ON (o.id, o.what) = (s.id, s.what)"
        assert database.execute(query).fetchone() == (ROWS,)
    assert list((tmp_path / "work").glob("app-*/*/headgate-*.zip")), "the executor has the package from the driver"

    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(60) == 0, node.log_file.read_text(encoding="utf-8")
