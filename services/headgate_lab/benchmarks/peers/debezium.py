"""A peer: Kafka Connect with the Debezium JDBC sink, in a JVM of its own, reading the very topic that Headgate reads.

Three settings of it, after its own documentation: as it comes; tuned (large batches and fetches, one write per key of a
batch); and at its best here (two tasks, and PostgreSQL's unnest besides). It needs schemas in the events, and is left
to create its table as it wants it. It writes at least once, has no fence, and keeps its positions at the broker.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import psutil

from headgate.provisioning import artifacts
from headgate.provisioning.java import find_java
from headgate.provisioning.jvm import Jvm
from headgate_lab.benchmarks.cpu import tree
from headgate_lab.benchmarks.targets import JdbcAddress
from headgate_lab.embedded.connect import ConnectWorker
from headgate_lab.embedded.plugin_archive import ensure_jdbc_sink

HEAP: Final = "-Xmx2g"

_TUNED: Final = {
    "batch.size": "5000",
    "consumer.override.max.poll.records": "5000",
    "consumer.override.fetch.min.bytes": "1048576",
    "consumer.override.max.partition.fetch.bytes": "20971520",
    "use.reduction.buffer": "true",
}

DEBEZIUM_SETTINGS: Final[dict[str, dict[str, str]]] = {
    "default": {"tasks.max": "1"},
    "tuned": {"tasks.max": "1", **_TUNED},
    "best": {"tasks.max": "2", **_TUNED},
}

_OF_DATABASE: Final[dict[str, dict[str, str]]] = {"postgresql": {"dialect.postgres.unnest.insert.enabled": "true"}}
"""What ``best`` has besides, by target; MariaDB's driver sends batches in bulk when its URL requests it."""

_URL_OPTIONS: Final[dict[str, str]] = {"mariadb": "?useBulkStmts=true"}


class DebeziumPeer:
    """One Connect worker."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._jvm: Jvm | None = None
        self._worker: ConnectWorker | None = None

    def __enter__(self) -> Self:
        plugins = [ensure_jdbc_sink()]
        jars = artifacts.ensure("kafka")
        self._folder.mkdir()
        options = [HEAP, f"-Djava.io.tmpdir={self._folder}"]
        self._jvm = Jvm(find_java(), jars, options, self._folder / "connect.log")
        self._worker = ConnectWorker(self._jvm, self._bootstrap, self._folder, plugins, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.stop()
        if self._jvm is not None:
            self._jvm.close()

    def processes(self) -> list[psutil.Process]:
        """The worker's JVM."""
        return [] if self._jvm is None else tree(self._jvm.pid)

    def run(
        self, topic: str, table: str, setting: str, to: tuple[str, JdbcAddress], until: Callable[[], bool]
    ) -> float:
        """Seconds from the connector's creation until ``until()``; ``to`` is the database's kind and address.

        Raises EmbeddedError when the connector fails.
        """
        started = time.monotonic()
        with self.running(topic, table, setting, to) as check:
            while not until():
                check()
            return time.monotonic() - started

    @contextmanager
    def running(
        self, topic: str, table: str, setting: str, to: tuple[str, JdbcAddress]
    ) -> Iterator[Callable[[], None]]:
        """A connector of that setting from the topic to the table. What is given raises EmbeddedError if it failed."""
        database, address = to
        is_best = setting == "best"
        options = DEBEZIUM_SETTINGS[setting] | (_OF_DATABASE.get(database, {}) if is_best else {})
        url = address.url + (_URL_OPTIONS.get(database, "") if is_best else "")
        name = table.rsplit(".", 1)[-1]
        with self.connector(name, [topic], name, msgspec.structs.replace(address, url=url), options) as check:
            yield check

    @contextmanager
    def connector(
        self, name: str, topics: Sequence[str], table: str, to: JdbcAddress, options: Mapping[str, str]
    ) -> Iterator[Callable[[], None]]:
        """A connector from these topics to ``table`` (a format of Debezium's); what is given raises if it failed."""
        worker = self._worker
        if worker is None:
            raise RuntimeError("the worker is started by entering the context")
        worker.put_connector(name, {**_config(topics, table, to), **options})
        try:
            yield lambda: worker.wait_until_running(name)
        finally:
            worker.delete_connector(name)


def _config(topics: Sequence[str], table: str, to: JdbcAddress) -> dict[str, str]:
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": ",".join(topics),
        "key.converter": converter,
        "key.converter.schemas.enable": "true",
        "value.converter": converter,
        "value.converter.schemas.enable": "true",
        "connection.url": to.url,
        "connection.username": to.user,
        "connection.password": to.password,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": table,
        "consumer.override.auto.offset.reset": "earliest",
    }
