"""The real parts the demo runs on: a broker with Connect in one JVM, a source and a target PostgreSQL, a connector.

Everything is started for the occasion in one folder and on free ports of the loopback interface, and is stopped in the
reverse order, whatever happens in between.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psycopg

from headgate.demo.audit_triggers import install_source_audit, install_target_audit
from headgate.demo.load import Key, fill
from headgate.demo.schema import SCHEMA, TABLES, create_source, create_target
from headgate.embedded.artifacts import ArtifactSet, ensure
from headgate.embedded.broker import EmbeddedKafka
from headgate.embedded.connect import ConnectWorker
from headgate.embedded.postgres import EmbeddedPostgres

__all__ = ["DATABASE", "FEED", "TOPIC_PREFIX", "Stack", "make_database", "running_stack"]

FEED: Final = "shop"
"""Name of the demo's feed."""

CONNECTOR: Final = "shop-source"

TOPIC_PREFIX: Final = "shop"
"""Debezium's name for the source: topics are ``shop.<schema>.<table>``."""

DATABASE: Final = "shop"

BROKER_SETTINGS: Final = {"broker.session.timeout.ms": "18000", "broker.heartbeat.interval.ms": "2000"}
"""The demo never kills its broker; on two busy cores a session of 1.5 s is lost for no reason, and leaders with it."""

ARTIFACTS: Final[tuple[ArtifactSet, ...]] = ("kafka", "debezium-postgres", "spark-kafka")

Say = Callable[[str], None]


class Stack(msgspec.Struct, frozen=True):
    """Where the parts are. ``keys`` are the rows the source begins with, per table's name."""

    kafka: EmbeddedKafka
    connect: ConnectWorker
    source_dsn: str
    target_dsn: str
    keys: dict[str, list[Key]]

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the broker."""
        return self.kafka.bootstrap


@contextmanager
def running_stack(folder: Path, seed: int, say: Say) -> Iterator[Stack]:
    """Start everything, fill the source and begin to capture it. Raises EmbeddedError, psycopg.Error."""
    progress = _Progress(say)
    for artifacts in ARTIFACTS:
        ensure(artifacts, progress)
    with ExitStack() as parts:
        say("starting the source PostgreSQL")
        source = parts.enter_context(EmbeddedPostgres(folder / "source", logical=True))
        say("starting the target PostgreSQL")
        target = parts.enter_context(EmbeddedPostgres(folder / "target"))
        source_dsn, target_dsn = make_database(source), make_database(target)
        say(f"creating {len(TABLES)} tables in both, with the audit's triggers, and filling the source")
        keys = _prepare(source_dsn, target_dsn, seed)
        say("starting a Kafka broker (KRaft), and Kafka Connect with Debezium, in one JVM")
        kafka = parts.enter_context(EmbeddedKafka(folder / "kafka", settings=BROKER_SETTINGS))
        connect = kafka.start_connect("debezium-postgres")
        say("capturing: snapshot of the source, then its changes")
        connect.put_connector(CONNECTOR, _connector(source))
        connect.wait_until_running(CONNECTOR)
        yield Stack(kafka, connect, source_dsn, target_dsn, keys)


class _Progress:
    """Says how fetching goes, a line for every quarter of a set that is not there yet."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._quarters: dict[str, int] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        quarter = 4 * done // total
        if self._quarters.get(name) != quarter:
            known = name in self._quarters
            self._quarters[name] = quarter
            if known or done < total:
                self._say(f"fetching {name}, each file checked against its pinned sha256: {done} of {total}")


def make_database(server: EmbeddedPostgres) -> str:
    """Create the shop's empty database; its address."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
    return server.dsn(DATABASE)


def _prepare(source_dsn: str, target_dsn: str, seed: int) -> dict[str, list[Key]]:
    with psycopg.connect(target_dsn, autocommit=True) as target:
        create_target(target)
        install_target_audit(target)
    with psycopg.connect(source_dsn, autocommit=True) as source:
        create_source(source)
        install_source_audit(source)
        return fill(source, seed)


def _connector(source: EmbeddedPostgres) -> dict[str, str]:
    """Debezium's configuration (anchors/capture-chain.md §2): decimals as text, because bytes lose their scale."""
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
    }
