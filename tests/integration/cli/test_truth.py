"""A table that fails again and again, on real parts: the commands and the metrics say so, and its lag grows.

Two causes, under writes: the sink's table lacks a column that the changes have; the target database takes no sessions.
A connector that has stopped is no agent's failure, and is found by its heartbeats.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog
from headgate.sources.heartbeats import PREFIX
from integration.cli.conftest import ANSWER_SECONDS, ROWS, Service, change, headgate, make_topics
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("one_core_spark")]

GROWN_SECONDS = 15.0
"""A lag that is more than a retry's pause: it has grown while the table waited."""


class Shop:
    """A node, its feed, and what people look at."""

    def __init__(self, settings: Settings, node: Service, topic: str) -> None:
        self.settings, self.node, self.topic = settings, node, topic
        self.number = ROWS

    def write(self, **more: Any) -> None:
        """One change more, with ``more`` columns."""
        self.number += 1
        key, value = change(self.number)
        event = json.loads(value)
        event["after"] |= more
        with Producer({"bootstrap.servers": self.settings.bootstrap}) as producer:
            producer.produce(self.topic, json.dumps(event).encode(), key)
            assert producer.flush(ANSWER_SECONDS) == 0

    def copy(self) -> None:
        """A row of a snapshot, which is not its last one."""
        key, value = change(self.number)
        event = json.loads(value)
        event |= {"op": "r", "source": event.get("source", {}) | {"snapshot": "true"}}
        with Producer({"bootstrap.servers": self.settings.bootstrap}) as producer:
            producer.produce(self.topic, json.dumps(event).encode(), key)
            assert producer.flush(ANSWER_SECONDS) == 0

    def beat(self, *seconds_ago: int) -> None:
        """The connector's heartbeats, as if they had been written then."""
        topic = f"{PREFIX}{self.topic.rsplit('.', 2)[0]}"
        with Producer({"bootstrap.servers": self.settings.bootstrap}) as producer:
            for ago in seconds_ago:
                producer.produce(topic, b"{}", b"{}", timestamp=wall_ms() - ago * 1000)
            assert producer.flush(ANSWER_SECONDS) == 0

    def is_silent(self) -> bool:
        """Whether ``why`` misses the connector's heartbeats. What was written just now may hold the feed as well."""
        told = headgate("why", "shop")
        assert told.exit_code in (ExitCode.DONE, ExitCode.HELD), told.output
        return "its connector seems to have stopped" in " ".join(told.stderr.split())

    def samples(self, name: str) -> list[float]:
        lines = self.node.get("/metrics")[1].splitlines()
        return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{")]

    def metric(self, name: str) -> float:
        return max(self.samples(name), default=0.0)

    def is_told(self, code: str) -> bool:
        """Whether each of them tells of the error, and of a lag that grows; more is written meanwhile."""
        self.write(**({"extra": 1} if code == "sink_column_missing" else {}))
        why = headgate("why", "shop", "-o", "json")
        (feed,) = json.loads(headgate("feed", "list", "-o", "json").stdout)
        (table,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return (
            why.exit_code == ExitCode.HELD
            and code in why.stdout
            and feed["state"] == "warning"
            and feed["replicating"] == 0
            and bool(feed["held_by"])
            and code in (table["error"] or "")
            and min(feed["lag_ms"] or 0, table["lag_ms"] or 0) > GROWN_SECONDS * 1000
            and all(lag > GROWN_SECONDS for lag in self.samples("headgate_feed_lag_seconds"))
            and self.metric("headgate_feed_oldest_unapplied_seconds") > GROWN_SECONDS
            and self.metric("headgate_feed_held_tables") == 1
        )

    def is_well(self) -> bool:
        (feed,) = json.loads(headgate("feed", "list", "-o", "json").stdout)
        is_quiet = headgate("why", "shop").exit_code == ExitCode.DONE
        numbers = [self.metric(f"headgate_feed_{name}") for name in ("held_tables", "oldest_unapplied_seconds")]
        return (is_quiet, feed["state"], feed["replicating"], numbers) == (True, "normal", 1, [0.0, 0.0])


def test_nothing_says_that_all_is_well_while_a_table_does_not_get_on(
    settings: Settings, *, log: KafkaLog, shop_file: Path, serve: Callable[..., Service], postgres_database: str
) -> None:
    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=300)
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr
    shop = Shop(settings, node, yaml.safe_load(shop_file.read_text(encoding="utf-8"))["source"]["topics"][0])
    eventually(shop.is_well, "all is well", seconds=300)

    eventually(lambda: shop.is_told("sink_column_missing"), "the missing column is told of", seconds=300)
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("ALTER TABLE orders ADD COLUMN extra int")
        ((name,),) = database.execute("SELECT current_database()").fetchall()
    eventually(shop.is_well, "it has recovered", seconds=300)

    with psycopg.connect(postgres_database, autocommit=True, dbname="postgres") as beside:
        beside.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
        try:
            beside.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            eventually(lambda: shop.is_told("sink_unavailable"), "the target that is gone is told of", seconds=300)
        finally:
            beside.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')
    eventually(shop.is_well, "it has recovered again", seconds=300)

    make_topics(log, NewTopic(f"{PREFIX}{shop.topic.rsplit('.', 2)[0]}", 1, 1))
    shop.beat(620, 610, 600)
    assert headgate("why", "shop").exit_code == ExitCode.HELD
    assert shop.is_silent()
    shop.copy()
    assert not shop.is_silent(), "it copies its tables again, and sends none"
    eventually(shop.is_well, "the copied row is applied", seconds=300)
    shop.write()
    assert shop.is_silent(), "the snapshot is over"
    shop.beat(0)
    assert not shop.is_silent()
    eventually(shop.is_well, "what was written is applied", seconds=300)
