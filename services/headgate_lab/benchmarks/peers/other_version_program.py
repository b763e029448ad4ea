"""The other end of other_version.py: builds the data plane of whatever version it is run with, and does its runs.

It imports only what every version has had.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from headgate.config.feed import SinkSpec
from headgate.provisioning import artifacts
from headgate.provisioning.java import java_home_for_spark
from headgate.replication.executor import ExecutorSettings, SparkExecutor
from headgate.replication.spark import SparkOptions, SparkRuntime
from headgate_lab.benchmarks.parts import CLUSTER_ID, Parts
from headgate_lab.benchmarks.pipeline import run_headgate
from headgate_lab.benchmarks.workload import Workload

__all__: list[str] = []


class _KnownTarget:
    """A database that the bench has started: all that a run needs of a target."""

    def __init__(self, database: str, dsn: str) -> None:
        self.dsn = dsn
        self.sink = SinkSpec(type="mysql" if database == "mariadb" else "postgresql", dsn=dsn)

    def create_shape(self, table: str, shape: Any) -> None:
        """The table is there: the bench has made it."""


def _serve(bootstrap: str, dsn: str, folder: Path) -> None:
    jars = artifacts.ensure("spark-kafka")
    runtime = SparkRuntime(SparkOptions(jars=jars, scratch=folder / "spark", java_home=java_home_for_spark()))
    executor = SparkExecutor(runtime, ExecutorSettings(bootstrap, CLUSTER_ID))
    nobody: Any = None
    parts = Parts(bootstrap, dsn, executor, runtime, os.getpid(), nobody, folder)
    try:
        runtime.start()
        _answer("ready")
        for line in sys.stdin:
            what, how, (database, to, table, number) = json.loads(line)
            target: Any = _KnownTarget(database, to)
            _answer(run_headgate(parts, Workload(*what, *how), target, table, number))
    finally:
        executor.close()
        runtime.stop()


def _answer(what: object) -> None:
    sys.stdout.write(f"race-with: {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
