"""Embedded servers start, stop, come back after a crash, and never outlive whoever started them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import psycopg
import pymysql
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from fixtures.services import mariadb_connect, mariadb_execute
from headgate.provisioning.errors import EmbeddedError, PortTakenError
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.ports import HOST, free_ports, require_free
from headgate_lab.embedded.postgres import EmbeddedPostgres
from headgate_lab.pages import versions
from support.ended import has_ended
from support.waiting import eventually

pytestmark = pytest.mark.integration

DEADLINE_SECONDS = scaled_seconds(120)
ALL_SERVERS = """\
import sys
from pathlib import Path
from headgate_lab.embedded.broker import EmbeddedKafka
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.postgres import EmbeddedPostgres

folder = Path(sys.argv[1])
try:
    with (
        EmbeddedPostgres(folder / "postgres"),
        EmbeddedKafka(folder / "kafka"),
        EmbeddedMariadb(folder / "mariadb"),
    ):
        print("up", flush=True)
        sys.stdin.read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path through which everybody may pass (PostgreSQL runs as `nobody` when we are root)."""
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def one_value(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_postgres_keeps_its_rows_over_stop_and_kill(folder: Path) -> None:
    with EmbeddedPostgres(folder / "postgres", logical=True) as server:
        assert one_value(server.dsn(), "SHOW wal_level") == "logical"
        assert str(one_value(server.dsn(), "SHOW server_version")).partition(".")[0] in versions.tested()["PostgreSQL"]
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn())
        server.start()
        assert one_value(server.dsn(), "SELECT n FROM kept") == 7
        server.kill()
        server.start()
        assert one_value(server.dsn(), "SELECT n FROM kept") == 7


def test_postgres_lets_nobody_in_without_the_password(folder: Path) -> None:
    with EmbeddedPostgres(folder / "postgres") as server, pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://postgres:guessed@{HOST}:{server.port}/postgres")


def test_two_postgres_run_side_by_side(folder: Path) -> None:
    with EmbeddedPostgres(folder / "source", logical=True) as source, EmbeddedPostgres(folder / "target") as target:
        identities = {
            one_value(server.dsn(), "SELECT system_identifier FROM pg_control_system()") for server in (source, target)
        }
        assert len(identities) == 2


def test_postgres_that_cannot_start_shows_its_log(folder: Path) -> None:
    server = EmbeddedPostgres(folder / "postgres", settings={"shared_buffers": "a lot"})
    with pytest.raises(EmbeddedError, match=r'did not start: .*invalid value for parameter "shared_buffers"'):
        server.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_root_is_told_when_nobody_cannot_reach_the_folder(folder: Path) -> None:
    folder.chmod(0o700)
    with pytest.raises(EmbeddedError, match=f"nobody cannot reach .* because of {folder}: choose a folder"):
        EmbeddedPostgres(folder / "postgres").start()


def test_mariadb_keeps_its_rows_over_stop_and_kill(folder: Path) -> None:
    with EmbeddedMariadb(folder / "mariadb", captured=True) as server:
        url = server.dsn("mysql")
        assert mariadb_execute(url, "SELECT @@log_bin, @@binlog_format") == [(1, "ROW")]
        ((version,),) = mariadb_execute(url, "SELECT version()")
        assert str(version).rpartition("-MariaDB")[0].rpartition(".")[0] in versions.tested()["MariaDB"]
        mariadb_execute(url, "CREATE DATABASE kept")
        mariadb_execute(url, "CREATE TABLE kept.t AS SELECT 7 AS n")
        server.stop()
        with pytest.raises(pymysql.OperationalError):
            mariadb_connect(url)
        server.start()
        assert mariadb_execute(url, "SELECT n FROM kept.t") == [(7,)]
        server.kill()
        server.start()
        assert mariadb_execute(url, "SELECT n FROM kept.t") == [(7,)]


def test_mariadb_lets_nobody_in_without_the_password(folder: Path) -> None:
    with EmbeddedMariadb(folder / "mariadb", settings={"max-connections": "11"}) as server:
        for user in ("root:guessed", "root", "nobody"):
            with pytest.raises(pymysql.OperationalError, match="Access denied"):
                mariadb_connect(f"mysql://{user}@{HOST}:{server.port}/")
        users = mariadb_execute(server.dsn("mysql"), "SELECT user, host FROM user WHERE user <> 'mariadb.sys'")
        assert users == [("root", HOST)], users
        assert mariadb_execute(server.dsn(), "SELECT @@max_connections") == [(11,)]


def test_mariadb_that_cannot_start_shows_its_log(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"did not start: (?s:.*)unknown variable 'wrong-option=1'"):
        EmbeddedMariadb(folder / "mariadb", settings={"wrong-option": "1"}).start()


def test_the_broker_keeps_its_records_over_stop_and_kill(folder: Path) -> None:
    with EmbeddedKafka(folder / "kafka") as kafka, Producer({"bootstrap.servers": kafka.bootstrap}) as producer:
        producer.produce("kept", b"value")
        assert producer.flush(DEADLINE_SECONDS) == 0
        killed = kafka.pid
        kafka.kill()
        assert not psutil.pid_exists(killed)
        kafka.start()
        assert producer.list_topics(timeout=DEADLINE_SECONDS).topics.keys() >= {"kept"}
        kafka.stop()
        with pytest.raises(EmbeddedError, match="not running"):
            _ = kafka.pid
        kafka.start()
        # The same client, the same address, and the records: a produce would show a new topic as well.
        assert eventually(lambda: _watermarks(kafka.bootstrap), "the partition has its leader again") == (0, 1)


def _watermarks(bootstrap: str) -> tuple[int, int] | None:
    """None while the broker that has just started does not have its partitions yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("kept", 0), timeout=DEADLINE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        return None
    finally:
        consumer.close()
    return low, high


def test_a_broker_that_cannot_start_shows_why_and_leaves_nothing(folder: Path) -> None:
    kafka = EmbeddedKafka(folder / "kafka", settings={"num.io.threads": "none"})
    before = set(_family(psutil.Process()))  # other tests' servers and Spark
    with pytest.raises(EmbeddedError, match=r"num\.io\.threads"):
        kafka.start()
    assert not set(_family(psutil.Process())) - before


KINDS = {"broker": EmbeddedKafka, "postgres": EmbeddedPostgres, "mariadb": EmbeddedMariadb}


@pytest.mark.parametrize("kind", KINDS)
def test_a_taken_port_is_named(folder: Path, kind: str) -> None:
    with socket.socket() as occupant:
        occupant.bind((HOST, 0))
        occupant.listen()
        port = occupant.getsockname()[1]
        server = KINDS[kind](folder, port=port)
        with pytest.raises(PortTakenError, match=f"port {port} .*is in use: stop the process .*or choose another"):
            server.start()


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        require_free(port, "a test")


def _names(family: Iterable[psutil.Process]) -> set[str]:
    """Of those that still run: a worker of PostgreSQL lives for a moment only."""
    names = set()
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            names.add(member.name())
    return names


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_servers_do_not_outlive_us(folder: Path, how: signal.Signals) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", ALL_SERVERS, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    family: list[psutil.Process] = []
    try:
        assert starter.stdout.readline() == "up\n"
        family = _family(psutil.Process(starter.pid))
        assert {"java", "postgres", "mariadbd"} <= _names(family)
        # As a terminal does it on Ctrl-C: the signal goes to the whole process group.
        os.killpg(starter.pid, how)
        if how is signal.SIGINT:
            assert starter.stdout.readline() == "interrupted\n"
        starter.wait(DEADLINE_SECONDS)
        eventually(lambda: all(map(has_ended, family)), f"all gone: {family}")
    finally:
        for left in [starter, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        starter.stdin.close()
        starter.stdout.close()
        starter.wait()
    assert starter.returncode == (0 if how is signal.SIGINT else -how)
    if how is signal.SIGINT:
        assert "database system is shut down" in (folder / "postgres" / "postgres.log").read_text()
        assert "mariadbd: Shutdown complete" in (folder / "mariadb" / "mariadb.log").read_text()


def _family(process: psutil.Process) -> list[psutil.Process]:
    return process.children(recursive=True)


def test_connect_says_why_a_connector_is_refused_and_captures_a_table(folder: Path) -> None:
    with (
        EmbeddedPostgres(folder / "source", logical=True) as source,
        EmbeddedKafka(folder / "kafka", settings=CALM) as kafka,
    ):
        with psycopg.connect(source.dsn()) as connection:
            connection.execute("CREATE TABLE item (id int PRIMARY KEY, name text)")
            connection.execute("INSERT INTO item VALUES (1, 'é')")
        worker = kafka.start_connect("debezium-postgres")
        with pytest.raises(EmbeddedError, match=r"Connect refused PUT .*no\.such\.Connector"):
            worker.put_connector("wrong", {"connector.class": "no.such.Connector"})
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "database.hostname": HOST,
            "database.port": str(source.port),
            "database.user": "postgres",
            "database.password": source.password,
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "table.include.list": "public.item",
        }
        worker.put_connector("shop", config)
        worker.wait_until_running("shop")
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": "test",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        try:
            consumer.subscribe(["shop.public.item"])
            seen: list[bytes] = []

            def captured() -> bool:
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    seen.append(message.value())
                return bool(seen)

            eventually(captured, "the snapshot's record is on its topic")
        finally:
            consumer.close()
        assert b'"after":{"id":1,"name":"\xc3\xa9"}' in seen[0]
        assert worker.connector_status("shop")["connector"]["state"] == "RUNNING"
        worker.delete_connector("shop")
