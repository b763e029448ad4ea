"""A peer: Flink SQL, Kafka source to JDBC sink, a cluster in one JVM that we drive; no job is compiled.

After its documentation: 5 000 rows a flush, batched inserts rewritten by the
driver, two tasks, and no state kept to repair the order of updates (a concession to its speed). It writes at least
once. Its JDBC connector for MySQL and MariaDB is in no registry that we reach, so it runs on PostgreSQL alone.
"""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
from py4j.protocol import Py4JError, Py4JJavaError

from headgate.provisioning import artifacts
from headgate.provisioning.java import find_java
from headgate.provisioning.jvm import Jvm, reason
from headgate_lab.benchmarks.cpu import tree
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.benchmarks.shapes import RowShape
from headgate_lab.benchmarks.targets import JdbcAddress

HEAP: Final = "-Xmx2g"
_OPENED: Final = (
    "java.util",
    "java.lang",
    "java.nio",
    "java.net",
    "java.time",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.lang.reflect",
    "java.text",
)
"""Packages of Java's base that Flink looks into; since Java 17 that must be configured."""

_SETTINGS: Final = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "execution.checkpointing.interval": "10s",
    "table.exec.sink.upsert-materialize": "NONE",
    # By itself it would retry without limit, in silence: a run that fails must not count.
    "restart-strategy.type": "none",
}


class FlinkPeer:
    """One JVM; ``run`` is one job from its submission to the last row."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._jvm: Jvm | None = None

    def __enter__(self) -> Self:
        jars = artifacts.ensure("flink")
        self._folder.mkdir()
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        options = [HEAP, *opened, f"-Djava.io.tmpdir={self._folder}"]
        self._jvm = Jvm(find_java(), jars, options, self._folder / "flink.log")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._jvm is not None:
            self._jvm.close()

    def processes(self) -> list[psutil.Process]:
        """The JVM with Flink's cluster in it."""
        return [] if self._jvm is None else tree(self._jvm.pid)

    def run(
        self, topic: str, table: str, to: JdbcAddress, what: tuple[RowShape, bool], until: Callable[[], bool]
    ) -> float:
        """Seconds from the job's submission until ``until()``.

        ``what``: the rows, and whether schemas are beside them. Raises BenchError when Flink refuses or ends the job.
        """
        if self._jvm is None:
            raise RuntimeError("the cluster is started by entering the context")
        shape, with_schema = what
        view = self._jvm.view.org.apache.flink
        started = time.monotonic()
        try:
            configuration = view.configuration.Configuration.fromMap(self._jvm.string_map(_SETTINGS))
            settings = view.table.api.EnvironmentSettings.newInstance().withConfiguration(configuration)
            environment = view.table.api.TableEnvironment.create(settings.build())
            environment.executeSql(_source(shape, topic, self._bootstrap, with_schema=with_schema))
            environment.executeSql(_sink(shape, table, to))
            client = environment.executeSql("INSERT INTO target SELECT * FROM source").getJobClient().get()
            ended = client.getJobExecutionResult()
            try:
                while not until():
                    _check(view, ended)
                return time.monotonic() - started
            finally:
                if not ended.isDone():
                    client.cancel().get()
        except Py4JError as error:
            raise BenchError(f"Flink refused: {reason(error)}; its log is {self._jvm.log_file}") from None


def _check(view: Any, ended: Any) -> None:
    # The cluster goes with its job, so it cannot be asked how the job is.
    if not ended.isDone():
        return
    try:
        ended.get()
    except Py4JJavaError as error:
        causes = [line for line in _trace(view, error).splitlines() if "Caused by:" in line]
        raise BenchError(f"Flink's job failed: {causes[-1] if causes else reason(error)}") from None
    raise BenchError("Flink's job ended before the table was right")


def _trace(view: Any, error: Py4JJavaError) -> str:
    return str(view.util.ExceptionUtils.stringifyException(error.java_exception))


def _columns(shape: RowShape) -> str:
    return ", ".join(f"`{column.name}` {column.flink}" for column in shape.columns)


def _source(shape: RowShape, topic: str, bootstrap: str, *, with_schema: bool) -> str:
    return (
        f"CREATE TABLE source ({_columns(shape)}) WITH ('connector'='kafka', 'topic'='{topic}',"
        f" 'properties.bootstrap.servers'='{bootstrap}', 'properties.group.id'='flink',"
        " 'scan.startup.mode'='earliest-offset', 'value.format'='debezium-json',"
        f" 'value.debezium-json.schema-include'='{str(with_schema).lower()}')"
    )


def _sink(shape: RowShape, table: str, to: JdbcAddress) -> str:
    # Numbers with a fraction and times go as text: the server is to give them the column's type.
    url = f"{to.url}?reWriteBatchedInserts=true&stringtype=unspecified"
    return (
        f"CREATE TABLE target ({_columns(shape)}, PRIMARY KEY (`{shape.names[0]}`) NOT ENFORCED) WITH ("
        f"'connector'='jdbc', 'url'='{url}', 'username'='{to.user}', 'password'='{to.password}',"
        f" 'table-name'='{table}', 'sink.buffer-flush.max-rows'='5000', 'sink.buffer-flush.interval'='1s')"
    )
