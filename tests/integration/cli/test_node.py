"""`headgate serve node`, the whole product in one process, as a user meets it: create, look, verify, stop."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import ANSWER_SECONDS, LEASE_SECONDS, ROWS, Service, headgate, replicate
from support.topic_changes import make_topics
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("one_core_spark")]


def _set_aside(settings: Settings, topic: str) -> None:
    """A change that nobody can read does not hold the table: it is kept with its bytes."""
    with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
        producer.produce(topic, key=b'{"id":7}', value=b"\xffgarbage")
        assert producer.flush(ANSWER_SECONDS) == 0

    def places() -> list[str]:
        rows = json.loads(headgate("deadletter", "list", "shop", "-o", "json").stdout)
        assert {row["code"] for row in rows} <= {"change_undecodable"}
        return [row["place"] for row in rows]

    (first,) = eventually(places, "it is set aside")
    shown = json.loads(headgate("deadletter", "show", "shop", first, "-o", "json").stdout)
    assert (shown["key"], shown["value_bytes"]) == ({"id": 7}, {"hex": b"\xffgarbage".hex()})


def _several_tables(settings: Settings, shop_file: Path, spec: dict[str, Any], dsn: str) -> None:
    """A second feed, over a topic with the changes of three tables, two of which it names."""
    topic = f"{settings.cluster}-mixed"
    with psycopg.connect(dsn, autocommit=True) as database:
        for table in ("left", "right"):
            database.execute(f'CREATE TABLE src."{table}" (id int PRIMARY KEY, what text)')
            database.execute(f"INSERT INTO src.\"{table}\" SELECT n, '{table}' FROM generate_series(1, 9) n")
            database.execute(f'CREATE TABLE "copy_{table}" (id int PRIMARY KEY, what text)')
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    make_topics(admin, NewTopic(topic, 1, 1))
    with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
        for number in range(1, 10):
            for table in ("other", "left", "right"):
                source = {"connector": "postgresql", "db": "d", "schema": "src", "table": table}
                event = {"op": "c", "after": {"id": number, "what": table}, "source": source}
                producer.produce(topic, json.dumps(event).encode(), json.dumps({"id": number}).encode())
        assert producer.flush(ANSWER_SECONDS) == 0
    sink = spec["sink"] | {"table": "public.copy_{table}"}
    mixed = {"feed": "mixed", "source": {"topics": [topic], "tables": ["src.left", "src.right"]}, "sink": sink}
    shop_file.write_text(yaml.safe_dump(mixed), encoding="utf-8")
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr

    def shown() -> tuple[int, str]:
        facts = json.loads(headgate("feed", "show", "mixed", "-o", "json").stdout)
        return facts["rows"], facts["passed_over"]

    wanted = 18, "9 changes of tables not in source.tables, the last of src.other"
    eventually(lambda: shown() == wanted, lambda: f"both tables are there, and the third was passed over: {shown()}")
    verified = headgate("verify", "mixed", "--source-dsn", dsn, "-o", "json")
    assert (json.loads(verified.stdout)["rows"], json.loads(verified.stdout)["differences"]) == (18, 0)
    removed = headgate("feed", "delete", "mixed", "--yes")
    assert removed.exit_code == 0, removed.stderr


def test_a_feed_runs_is_verified_and_stops(
    settings: Settings,
    *,
    shop_file: Path,
    serve: Callable[..., Service],
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody is killed, and the session that the agent begins with is its only one: also on a machine that stalls.
    monkeypatch.setenv("HEADGATE_LEASE_SECONDS", str(3 * LEASE_SECONDS))
    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=300)
    spec = yaml.safe_load(shop_file.read_text(encoding="utf-8"))
    shop_file.write_text(yaml.safe_dump(spec | {"on_bad_change": "quarantine"}), encoding="utf-8")
    replicate(node, shop_file)
    (agent,) = json.loads(headgate("agent", "list", "-o", "json").stdout)
    assert (agent["agent"], agent["state"], agent["tables"]) == ("n1", "alive", 1)
    eventually(lambda: headgate("why", "shop").exit_code == 0, lambda: headgate("why", "shop").output)
    _another_of_the_name(serve)
    _several_tables(settings, shop_file, spec, postgres_database)
    _set_aside(settings, spec["source"]["topics"][0])
    verified = headgate("verify", "shop", "--source-dsn", postgres_database, "-o", "json")
    assert verified.exit_code == 0, verified.stderr
    assert (json.loads(verified.stdout)["rows"], json.loads(verified.stdout)["differences"]) == (ROWS, 0)
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("UPDATE src.orders SET what = 'other' WHERE id = 7")
        database.execute("ALTER TABLE src.orders ADD COLUMN extra int")
    different = headgate("verify", "shop", "--source-dsn", postgres_database)
    assert different.exit_code == ExitCode.DIFFERENCE
    assert '{"id":"7"}: differs in what' in different.stderr
    assert "With --repair the rows that differ are overwritten" in different.stderr
    assert "extra not compared: only in the source" in different.stderr
    assert "headgate_agent_sessions_total 1.0" in node.get("/metrics")[1]

    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(ANSWER_SECONDS) == ExitCode.DONE, node.log_file.read_text(encoding="utf-8")
    _said_once(node)


def _another_of_the_name(serve: Callable[..., Service]) -> None:
    twin = serve("twin", "agent", "--name", "n1")
    assert twin.process.wait(scaled_seconds(120)) == ExitCode.ID_IN_USE
    said = twin.log_file.read_text(encoding="utf-8")
    assert "agent name n1 is in use by session" in said
    assert "spark's default log4j profile" not in said.lower(), "no JVM was started"


def _said_once(node: Service) -> None:
    """Not a word of the JVM that was ended, and not a line for each of the looks at a source that is as it was."""
    said = node.log_file.read_text(encoding="utf-8")
    assert "Traceback" not in said
    assert "Exception" not in said
    assert "Spark's pages" not in said, "they are served when they are asked for"
    results = [(line["effect"], line["feed"], line["result"]) for line in node.lines() if line["event"] == "effect"]
    assert {kind for kind, _, _ in results} >= {"ResolveFeed"}
    looks = [result for result in results if result[0] == "DiscoverTables"]
    assert len(looks) == len(set(looks)), looks


@pytest.fixture
def silent_master(one_core_spark: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Agents that are started here wait for the master of their Spark, which does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HEADGATE_SPARK__MASTER", f"spark://127.0.0.1:{server.getsockname()[1]}")
        yield


@pytest.mark.usefixtures("silent_master")
def test_an_agent_is_listed_while_its_spark_starts_and_can_be_stopped_then(
    log: KafkaLog, serve: Callable[..., Service]
) -> None:
    agent = serve("agent", "agent", "--name", "a1")

    def listed() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(headgate("agent", "list", "-o", "json").stdout)
        return rows

    (row,) = eventually(listed, "it is there")
    assert (row["agent"], row["state"]) == ("a1", "starting")
    eventually(lambda: psutil.Process(agent.process.pid).children(recursive=True), "Spark's JVM is being started")
    family = psutil.Process(agent.process.pid).children(recursive=True)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(ANSWER_SECONDS) == ExitCode.DONE, agent.log_file.read_text(encoding="utf-8")
    assert listed() == [], "it has taken its announcement with it"
    _, alive = psutil.wait_procs(family, timeout=ANSWER_SECONDS)
    assert alive == []
    assert "Traceback" not in agent.log_file.read_text(encoding="utf-8")
