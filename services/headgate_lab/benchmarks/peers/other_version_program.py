"""The other end of other_version.py: builds the data plane of whatever version it is run with, and does its runs.

It imports only what every version has had, from where that version has it.
"""

import importlib
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headgate.config.sink_spec import SinkSpec

__all__: list[str] = []

IS_ONE_PACKAGE = find_spec("headgate.benchmarks") is not None
"""Until 28f391f benchmarks and embedded parts were in the product's package, and a lane in the agent's."""


def _module(now: str, then: str) -> Any:
    return importlib.import_module(then if IS_ONE_PACKAGE else now)


_artifacts = _module("headgate.provisioning.artifacts", "headgate.embedded.artifacts")
_java = _module("headgate.provisioning.java", "headgate.embedded.java")
_executor = _module("headgate.replication.executor", "headgate.agent.lane.executor")
_spark = _module("headgate.replication.spark", "headgate.agent.lane.spark")
_parts = _module("headgate_lab.benchmarks.parts", "headgate.benchmarks.parts")
_pipeline = _module("headgate_lab.benchmarks.pipeline", "headgate.benchmarks.pipeline")
_workload = _module("headgate_lab.benchmarks.workload", "headgate.benchmarks.workload")


class _KnownTarget:
    """A database that the bench has started: all that a run needs of a target."""

    def __init__(self, database: str, dsn: str) -> None:
        self.dsn = dsn
        self.sink = SinkSpec(type="mysql" if database == "mariadb" else "postgresql", dsn=dsn)

    def create_shape(self, table: str, shape: Any) -> None:
        """The table is there: the bench has made it."""


def _serve(bootstrap: str, dsn: str, folder: Path) -> None:
    jars = _artifacts.ensure("spark-kafka")
    options = _spark.SparkOptions(jars=jars, scratch=folder / "spark", java_home=_java.java_home_for_spark())
    runtime = _spark.SparkRuntime(options)
    executor = _executor.SparkExecutor(runtime, _executor.ExecutorSettings(bootstrap, _parts.CLUSTER_ID))
    nobody: Any = None
    parts = _parts.Parts(bootstrap, dsn, executor, runtime, os.getpid(), nobody, folder)
    try:
        runtime.start()
        _answer("ready")
        for line in sys.stdin:
            what, how, (database, to, table, number) = json.loads(line)
            target: Any = _KnownTarget(database, to)
            _answer(_pipeline.run_headgate(parts, _workload.Workload(*what, *how), target, table, number))
    finally:
        executor.close()
        runtime.stop()


def _answer(what: object) -> None:
    sys.stdout.write(f"race-with: {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
