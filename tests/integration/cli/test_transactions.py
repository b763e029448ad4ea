"""A feed of Debezium with a target, on real parts: ends of transactions let it finish, without them it cannot."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.shifted_clock import shifted_clock
from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.ts import ts_of_ms
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate, make_topics
from support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(scaled_seconds(600)),
    pytest.mark.usefixtures("one_core_spark"),
]

BEGUN_MS = time.time_ns() // 1_000_000 - 600_000
"""Lately: the broker deletes what is a week old."""
TARGET_MS = BEGUN_MS + 1_000
SECONDS = 300.0
"""A node starts Spark, which on a busy machine takes a minute."""


class Debezium:
    """Writes what a connector would: changes of two tables, and ends of transactions."""

    def __init__(self, log: KafkaLog, prefix: str) -> None:
        self.prefix = prefix
        self.ends = f"{prefix}.transaction"
        self._log = log
        self._producer = Producer({"bootstrap.servers": log.connection.bootstrap_servers, "enable.idempotence": True})
        self.make(f"{prefix}.public.goods", f"{prefix}.public.rarely")

    def make(self, *topics: str) -> None:
        make_topics(self._log, *(NewTopic(topic, 1, 1) for topic in topics))

    def transaction(self, number: int, at_ms: int, *changes: tuple[int, str], table: str = "goods") -> None:
        for order, (key, what) in enumerate(changes, 1):
            value = {
                "op": "c",
                "after": {"id": key, "what": what},
                "source": {"ts_ms": at_ms, "snapshot": "false"},
                "transaction": {"id": f"{number}:{order}", "total_order": order, "data_collection_order": order},
            }
            self._write(f"{self.prefix}.public.{table}", {"id": key}, value, at_ms)
        counts = [{"data_collection": f"public.{table}", "event_count": len(changes)}]
        end = {"status": "END", "id": f"{number}:99", "ts_ms": at_ms, "event_count": len(changes)}
        self._write(self.ends, {"id": f"{number}:99"}, {**end, "data_collections": counts}, at_ms)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def close(self) -> None:
        self._producer.close()

    def _write(self, topic: str, key: object, value: object, at_ms: int) -> None:
        self._producer.produce(topic, json.dumps(value).encode(), json.dumps(key).encode(), 0, timestamp=at_ms)


def _shown() -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(headgate("feed", "show", "shop", "-o", "json").stdout)
    return shown


@pytest.fixture(
    params=[
        0,
        # Far beyond what a lag may be for a table to count as complete.
        pytest.param(420, marks=pytest.mark.long, id="clock ahead"),
        pytest.param(-300, marks=pytest.mark.long, id="clock behind"),
    ]
)
def shift_seconds(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """By how much the clock of coordinator and agent is wrong."""
    shift: int = request.param
    for name, value in (shifted_clock(tmp_path, shift) if shift else {}).items():
        monkeypatch.setenv(name, value)
    return shift


def test_a_feed_of_debezium_ends_where_ends_of_transactions_say_so(
    settings: Settings,
    log: KafkaLog,
    postgres_database: str,
    tmp_path: Path,
    *,
    serve: Callable[..., Service],
    shift_seconds: int,
) -> None:
    connector = Debezium(log, f"{settings.cluster}-shop")
    given = {name: value for name, value in conninfo_to_dict(postgres_database).items() if value is not None}
    password = tmp_path / "password"
    password.write_text(str(given.pop("password", "")), encoding="utf-8")
    file = tmp_path / "shop.yaml"

    def create(**source: object) -> Any:
        pattern = rf"{connector.prefix}\..*"
        spec = {
            "feed": "shop",
            "source": {"topic_pattern": pattern, "target_ts": ts_of_ms(TARGET_MS), **source},
            "sink": {
                "type": "postgresql",
                "dsn": make_conninfo("", **given),
                "password_file": str(password),
                "table": "public.{table}",
            },
        }
        file.write_text(yaml.safe_dump(spec), encoding="utf-8")
        return headgate("feed", "create", str(file))

    with closing(connector), psycopg.connect(postgres_database, autocommit=True) as database:
        for table in ("goods", "rarely"):
            database.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, what text)")
        started_at = time.time()
        node = serve("node", "node", "--name", "n1")
        eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=SECONDS)
        written_at = datetime.fromisoformat(node.lines()[0]["timestamp"]).timestamp()
        apart = abs(written_at - started_at - shift_seconds)
        assert apart < scaled_seconds(60) + abs(shift_seconds) / 2, "the clock is not shifted"
        without = create()
        assert without.exit_code != 0
        assert "with source.transaction_topic" in without.stderr
        missing = create(transaction_topic=connector.ends)
        assert missing.exit_code == ExitCode.SOURCE
        assert f"{connector.ends} does not exist. Set provide.transaction.metadata=true" in missing.stderr

        connector.make(connector.ends)
        connector.transaction(6, BEGUN_MS, (0, "seldom"), table="rarely")
        connector.transaction(7, BEGUN_MS, (1, "first"), (2, "first"))
        connector.transaction(8, BEGUN_MS + 10, (1, "second"))
        created = create(transaction_topic=connector.ends)
        assert created.exit_code == 0, created.stderr

        def resolved() -> Any:
            assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
            checkpoint = _shown()["checkpoint"] or {}
            return (checkpoint.get("kind"), checkpoint.get("ts")) == ("resolved", ts_of_ms(BEGUN_MS + 10) - 1)

        eventually(resolved, "both tables are complete up to the last transaction", seconds=SECONDS)
        assert _shown()["state"] == "normal"
        connector.transaction(9, TARGET_MS, (2, "in time"), (3, "in time"))
        connector.transaction(10, TARGET_MS + 1, (1, "too late"), (4, "too late"))
        eventually(lambda: _shown()["state"] == "finished", "it ends", seconds=SECONDS)
        assert _shown()["checkpoint"]["ts"] == ts_of_ms(TARGET_MS)
        assert database.execute("SELECT id, what FROM goods ORDER BY id").fetchall() == [
            (1, "second"), (2, "in time"), (3, "in time"),
        ]  # fmt: skip
        assert database.execute("SELECT id, what FROM rarely").fetchall() == [(0, "seldom")]
