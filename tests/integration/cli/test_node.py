"""`headgate serve node`, the whole product in one process, as a user meets it: create, look, verify, stop."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.cli.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import Service, eventually, headgate

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROWS = 500


def _change(number: int) -> tuple[bytes, bytes]:
    after = {"id": number, "what": f"ä{number}"}
    source = {
        "connector": "postgresql",
        "schema": "src",
        "table": "orders",
        "lsn": 1000 + number,
        "ts_ms": 1_700_000_000_000,
    }
    event = {"before": None, "after": after, "source": source, "op": "c", "ts_ms": 1_700_000_000_000}
    return json.dumps({"id": number}).encode(), json.dumps(event).encode()


def test_a_feed_runs_is_verified_and_stops(
    settings: Settings,
    *,
    log: KafkaLog,
    serve: Callable[..., Service],
    spark_jars: tuple[Path, ...],
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
    monkeypatch.setenv("HEADGATE_SPARK__MASTER", "local[1]")
    topic = f"{settings.cluster}-shop.src.orders"
    for future in log.connection.admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(10)
    given = {name: value for name, value in conninfo_to_dict(postgres_database).items() if value is not None}
    password = tmp_path / "password"
    password.write_text(str(given.pop("password", "")), encoding="utf-8")
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("CREATE SCHEMA src; CREATE TABLE src.orders (id int PRIMARY KEY, what text)")
        database.execute(f"INSERT INTO src.orders SELECT n, 'ä' || n FROM generate_series(1, {ROWS}) n")
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, what text)")
    producer = Producer({"bootstrap.servers": settings.bootstrap, "enable.idempotence": True})
    for number in range(1, ROWS + 1):
        key, value = _change(number)
        producer.produce(topic, key=key, value=value)
    assert producer.flush(30) == 0
    file = tmp_path / "shop.yaml"
    sink = {
        "type": "postgresql",
        "dsn": make_conninfo("", **given),
        "password_file": str(password),
        "table": "public.{table}",
    }
    file.write_text(yaml.safe_dump({"feed": "shop", "source": {"topics": [topic]}, "sink": sink}), encoding="utf-8")

    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=120)
    created = headgate("feed", "create", str(file))
    assert created.exit_code == 0, created.stderr

    def applied() -> bool:
        assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
        (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return bool(row["state"] == "replicating" and row["rows"] == ROWS)

    eventually(applied, "all rows are applied", seconds=120)
    (agent,) = json.loads(headgate("agent", "list", "-o", "json").stdout)
    assert (agent["agent"], agent["state"], agent["tables"]) == ("n1", "alive", 1)
    why = headgate("why", "shop")
    assert why.exit_code == 0, why.output
    verified = headgate("verify", "shop", "--source-dsn", postgres_database, "-o", "json")
    assert verified.exit_code == 0, verified.stderr
    assert (json.loads(verified.stdout)["rows"], json.loads(verified.stdout)["differences"]) == (ROWS, 0)
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("UPDATE src.orders SET what = 'other' WHERE id = 7")
    different = headgate("verify", "shop", "--source-dsn", postgres_database)
    assert different.exit_code == ExitCode.DIFFERENCE
    assert '{"id":"7"}: differs in what' in different.stderr
    assert "headgate_agent_sessions_total 1.0" in node.get("/metrics")[1]

    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(60) == ExitCode.DONE, node.log_file.read_text(encoding="utf-8")
