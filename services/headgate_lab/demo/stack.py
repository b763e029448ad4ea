"""The real parts the demo runs on: a broker with Connect in one JVM, a source and a target PostgreSQL, a connector.

Everything is started for the occasion in one folder and on free ports of the loopback interface, and is stopped in the
reverse order, whatever happens in between.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headgate.provisioning.artifacts import ArtifactSet, ensure
from headgate_lab.demo.audit_triggers import install_source_audit, install_target_audit
from headgate_lab.demo.load import Key, fill
from headgate_lab.demo.roles import create_sink_role, create_source_role
from headgate_lab.demo.schema import SCHEMA, TABLES, create_source
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.embedded.connect import ConnectWorker
from headgate_lab.embedded.postgres import EmbeddedPostgres

FEED: Final = "shop"
"""Name of the demo's feed."""

CONNECTOR: Final = "shop-source"

TOPIC_PREFIX: Final = "shop"
"""Debezium's name for the source: topics are ``shop.<schema>.<table>``."""

DATABASE: Final = "shop"

ARTIFACTS: Final[tuple[ArtifactSet, ...]] = ("kafka", "debezium-postgres", "spark-kafka")

Stage = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""Shows that a stage has started; the callable that it gives reports the progress (display.py)."""


class Stack(msgspec.Struct, frozen=True):
    """The parts and where they are. ``keys`` are the rows the source begins with, per table's name.

    ``source_dsn`` and ``target_dsn`` are the superuser's, ``reader_dsn`` and ``sink_dsn`` Headgate's own.
    """

    kafka: EmbeddedKafka
    connect: ConnectWorker
    source: EmbeddedPostgres
    target: EmbeddedPostgres
    source_dsn: str
    target_dsn: str
    reader_dsn: str
    sink_dsn: str
    keys: dict[str, list[Key]]

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the broker."""
        return self.kafka.bootstrap

    def gone(self) -> list[str]:
        """Parts whose process has ended, a line each with the log to look at; they are not started again."""
        parts = [
            (self.kafka.alive(), "the Kafka broker, with Kafka Connect in its process", self.kafka.log_file),
            (self.source.alive(), "the source PostgreSQL", self.source.log_file),
            (self.target.alive(), "the target PostgreSQL", self.target.log_file),
        ]
        return [f"{name}: its process has ended; its log is {log}" for is_alive, name, log in parts if not is_alive]


@contextmanager
def running_stack(folder: Path, seed: int, stage: Stage) -> Iterator[Stack]:
    """Start everything, fill the source and begin to capture it. Raises EmbeddedError, psycopg.Error."""
    with stage("fetching what is not there yet, each file checked against its pinned sha256") as tell:
        for artifacts in ARTIFACTS:
            ensure(artifacts, lambda name, done, total: tell(f"{name} {done} of {total}"))
    with ExitStack() as parts:
        with stage("starting the source and the target PostgreSQL"):
            source = parts.enter_context(EmbeddedPostgres(folder / "source", logical=True))
            target = parts.enter_context(EmbeddedPostgres(folder / "target"))
            source_dsn, target_dsn = make_database(source), make_database(target)
        with stage(f"creating and filling {len(TABLES)} tables in the source; the target stays empty"):
            keys, reader_dsn, sink_dsn = _prepare(source_dsn, target_dsn, seed)
        with stage("starting a Kafka broker (KRaft), and Kafka Connect with Debezium, in one JVM"):
            kafka = parts.enter_context(EmbeddedKafka(folder / "kafka", settings=CALM))
            connect = kafka.start_connect("debezium-postgres")
        with stage("capturing: snapshot of the source, then its changes"):
            connect.put_connector(CONNECTOR, _connector(source))
            connect.wait_until_running(CONNECTOR)
        yield Stack(kafka, connect, source, target, source_dsn, target_dsn, reader_dsn, sink_dsn, keys)


def make_database(server: EmbeddedPostgres) -> str:
    """Create the shop's empty database; its address."""
    with postgres_client(server.dsn()) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
    return server.dsn(DATABASE)


def _prepare(source_dsn: str, target_dsn: str, seed: int) -> tuple[dict[str, list[Key]], str, str]:
    """The source's rows, and the addresses of source and target for Headgate. The audit waits for the tables."""
    with postgres_client(target_dsn) as target:
        install_target_audit(target)
        sink_dsn = create_sink_role(target, target_dsn, creates_tables=True)
    with postgres_client(source_dsn) as source:
        create_source(source)
        install_source_audit(source)
        return fill(source, seed), create_source_role(source, source_dsn), sink_dsn


def _connector(source: EmbeddedPostgres) -> dict[str, str]:
    """Debezium's configuration: decimals as text, because bytes lose their scale; TRUNCATE too, which it leaves out."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(source.port),
        "database.user": "postgres",
        "database.password": source.password,
        "database.dbname": DATABASE,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "slot.name": "headgate_demo",
        "topic.prefix": TOPIC_PREFIX,
        "table.include.list": ",".join(f"{SCHEMA}.{table.name}" for table in TABLES),
        "snapshot.mode": "initial",
        "heartbeat.interval.ms": "2000",
        "poll.interval.ms": "100",
        "provide.transaction.metadata": "true",
        "decimal.handling.mode": "string",
        "skipped.operations": "none",
    }
