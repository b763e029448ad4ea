"""A feed of TiCDC's Canal-JSON with a target, on real parts: it ends where it should, and can go through it again."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.config.times import show_ts
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.ts import ts_of_ms
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate, make_topics
from support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(scaled_seconds(900)),
    pytest.mark.usefixtures("one_core_spark"),
]

BEGUN = ts_of_ms(time.time_ns() // 1_000_000 - 600_000)
"""Lately: the broker deletes what is a week old."""
TARGET = BEGUN + 100
PARTITIONS = 2
SECONDS = 300.0
"""A node starts Spark, which on a busy machine takes a minute."""


class Ticdc:
    """Writes what TiCDC would: rows by their keys' partitions, watermarks into all of them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._topic = topic

    def row(self, kind: str, number: int, what: str, ts: int) -> None:
        data = [{"id": str(number), "what": what, "price": f"{number}.50", "raw": "\u0001ÿ"}]
        types = {"id": "bigint", "what": "varchar(20)", "price": "decimal(10,2)", "raw": "varbinary(8)"}
        self._write(
            number % PARTITIONS,
            ts,
            {"database": "shop", "table": "orders", "pkNames": ["id"], "type": kind, "mysqlType": types, "data": data},
            {"commitTs": ts},
        )

    def watermark(self, ts: int) -> None:
        for partition in range(PARTITIONS):
            self._write(partition, ts, {"type": "TIDB_WATERMARK"}, {"watermarkTs": ts})
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def close(self) -> None:
        self._producer.close()

    def _write(self, partition: int, ts: int, message: dict[str, Any], extension: dict[str, int]) -> None:
        value = json.dumps({**message, "isDdl": False, "es": ts >> 18, "ts": ts >> 18, "_tidb": extension}).encode()
        self._producer.produce(self._topic, value, partition=partition, timestamp=ts >> 18)


def _show(what: str = "shop") -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(headgate("feed", "show", what, "-o", "json").stdout)
    return shown


@pytest.fixture
def feed(
    settings: Settings, log: KafkaLog, postgres_database: str, tmp_path: Path
) -> Iterator[tuple[Ticdc, Path, dict]]:
    """A topic, an empty table, and the file of a feed between them."""
    topic = f"{settings.cluster}-shop.orders"
    make_topics(log, NewTopic(topic, PARTITIONS, 1))
    given = {name: value for name, value in conninfo_to_dict(postgres_database).items() if value is not None}
    password = tmp_path / "password"
    password.write_text(str(given.pop("password", "")), encoding="utf-8")
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, what text, price numeric, raw bytea)")
    spec = {
        "feed": "shop",
        "source": {"topics": [topic], "format": "ticdc-canal-json", "target_ts": TARGET},
        "sink": {
            "type": "postgresql",
            "dsn": make_conninfo("", **given),
            "password_file": str(password),
            "table": "public.orders",
        },
    }
    with closing(Ticdc(settings.bootstrap, topic)) as ticdc:
        yield ticdc, tmp_path / "shop.yaml", spec


def test_a_feed_with_a_target_ends_finished_and_can_be_gone_through_again(
    feed: tuple[Ticdc, Path, dict],
    *,
    serve: Callable[..., Service],
    postgres_database: str,
) -> None:
    ticdc, file, spec = feed
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    for number in range(20):
        ticdc.row("INSERT", number, "first", BEGUN + number)
    ticdc.watermark(BEGUN + 19)

    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=SECONDS)
    created = headgate("feed", "create", str(file))
    assert created.exit_code == 0, created.stderr

    def resolved() -> Any:
        assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
        return _show()["checkpoint"] == {"kind": "resolved", "ts": BEGUN + 19, "time": show_ts(BEGUN)}

    eventually(resolved, "the first watermark is reached", seconds=SECONDS)
    assert _show()["state"] == "normal"
    ticdc.row("UPDATE", 1, "second", BEGUN + 50)
    ticdc.row("DELETE", 2, "", TARGET)
    ticdc.row("UPDATE", 3, "too late", TARGET + 1)
    ticdc.row("INSERT", 99, "too late", TARGET + 2)
    ticdc.watermark(TARGET + 5)
    ticdc.row("DELETE", 4, "", TARGET + 6)
    ticdc.watermark(TARGET + 9)
    eventually(lambda: _show()["state"] == "finished", "it ends", seconds=SECONDS)

    shown = _show()
    assert (shown["wanted"], shown["checkpoint"]["ts"]) == ("finished", TARGET + 5)
    expected = [(n, "second" if n == 1 else "first", f"{n}.50", b"\x01\xff") for n in range(20) if n != 2]
    with psycopg.connect(postgres_database, autocommit=True) as database:

        def rows() -> list[tuple[Any, ...]]:
            return database.execute("SELECT id, what, price::text, raw FROM orders ORDER BY id").fetchall()

        assert rows() == expected
        assert database.execute("SELECT DISTINCT closed FROM headgate.progress").fetchall() == [(True,)]
        refused = headgate("feed", "resume", "shop")
        assert refused.exit_code == ExitCode.REQUEST_REFUSED
        assert "has reached its target_ts" in refused.stderr
        refused = headgate("feed", "resume", "shop", "--from", str(TARGET), "--yes")
        assert "is not before the feed's target" in refused.stderr

        database.execute("TRUNCATE orders")
        again = headgate("feed", "resume", "shop", "--from", show_ts(BEGUN), "--yes")
        assert again.exit_code == 0, again.stderr
        eventually(lambda: _show()["state"] == "finished", "it ends again", seconds=SECONDS)
        assert rows() == expected
