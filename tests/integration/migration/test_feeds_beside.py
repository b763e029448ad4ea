"""A captured table that one feed writes and another one replicates from, changed while both run: all parts are real.

    our events ─▶ topic ─▶ feed "in" ─▶ items (captured) ─▶ Debezium's topic ─▶ feed "out" ─▶ the sink's items

What the table, and so the sink, must hold in the end is known from the events alone.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from fixtures.capture import Sources
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import ANSWER_SECONDS, headgate
from integration.migration.shop import (
    CUTOVER_SECONDS,
    ROWS,
    Serve,
    Shop,
    state_of,
)
from support.topic_changes import make_topics
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration

EVENTS_PER_SECOND = 50
CHANGED_ROWS = 200
"""Rows that are changed again and again, so that a batch and the cut-over meet at them."""


class Events(threading.Thread):
    """Writes changes of rows to the topic of feed "in"; knows what the rows must be in the end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="events", daemon=True)
        self.rows: dict[int, int] = {}
        self.stopping = threading.Event()
        self._topic, self._number = topic, 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def run(self) -> None:
        while not self.stopping.wait(1 / EVENTS_PER_SECOND):
            self.write()

    def write(self) -> None:
        self._number += 1
        # Every third row is a new one.
        key = ROWS + self._number if self._number % 3 == 0 else self._number % CHANGED_ROWS
        source = {"connector": "postgresql", "schema": "in", "table": "items", "lsn": self._number, "ts_ms": 1}
        after = {"id": key, "v": self._number}
        event = {"before": None, "after": after, "source": source, "op": "c", "ts_ms": 1}
        self._producer.produce(self._topic, json.dumps(event).encode(), json.dumps({"id": key}).encode())
        self._producer.poll(0)
        self.rows[key] = self._number

    def end(self) -> dict[int, int]:
        self.stopping.set()
        self.join(END_SECONDS_MAX)
        assert self._producer.flush(ANSWER_SECONDS) == 0
        return self.rows


class Sink:
    """Where feed "out" goes: tables of a PostgreSQL."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, parts = url, urlsplit(url)
        self.spec = {
            "type": "postgresql",
            "dsn": f"postgresql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}",
            "password_file": str(folder / "sink-password"),
            "table": "public.{table}",
        }
        (folder / "sink-password").write_text(unquote(parts.password or ""), encoding="utf-8")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(psycopg.connect(self._url, autocommit=True)) as session:
            found = session.execute(statement)
            return found.fetchall() if found.description else []


@pytest.fixture
def sink(postgres_database: str, tmp_path: Path) -> Sink:
    found = Sink(postgres_database, tmp_path)
    found.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, label text DEFAULT 'new', note text)")
    found.run("CREATE TABLE others (id int PRIMARY KEY, v int NOT NULL)")
    return found


@pytest.fixture
def events(cluster: KafkaLog, sources: Sources, shop: Shop) -> Iterator[Events]:
    topic = f"in{shop.schema}.{shop.schema}.items"
    make_topics(cluster.connection.admin, NewTopic(topic, 1, 1))
    found = Events(sources.bootstrap, topic)
    yield found
    found.stopping.set()
    if found.is_alive():
        found.join(END_SECONDS_MAX)


def created(folder: Path, feed: str, topics: list[str], sink: dict[str, object], start: str = "earliest") -> None:
    file = folder / f"{feed}.yaml"
    file.write_text(yaml.safe_dump({"feed": feed, "source": {"topics": topics, "start": start}, "sink": sink}))
    asked = headgate("feed", "create", str(file))
    assert asked.exit_code == 0, asked.output


def completed(migration: str) -> dict[str, Any]:
    eventually(lambda: state_of(migration)["state"] not in ("queued", "ready", "running"), "it has ended", 300)
    shown = state_of(migration)
    assert shown["state"] == "complete", shown
    return shown


def reasons(feed: str) -> list[dict[str, Any]]:
    """What ``why`` says now, once it names the column."""
    told: dict[str, Any] = json.loads(headgate("why", feed, "-o", "json").stdout)
    return [reason for reason in told["reasons"] if "no column" in reason["detail"]]


@pytest.mark.long
def test_a_table_is_changed_between_two_feeds(
    events: Events, sources: Sources, serve: Serve, shop: Shop, sink: Sink
) -> None:
    folder = shop.password_file.parent
    shop.run("CREATE TABLE others (id int PRIMARY KEY, v int NOT NULL)")
    others = shop.topic.replace(".items", ".others")
    if shop.address.startswith("postgresql"):
        shop.run(f"ALTER PUBLICATION p_{shop.schema} ADD TABLE others")
    sources.wait_until_captured(others, lambda number: shop.run(f"INSERT INTO others VALUES ({number}, 0)"))
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    kind = "postgresql" if shop.address.startswith("postgresql") else "mysql"
    into = {
        "type": kind,
        "dsn": shop.address,
        "password_file": str(shop.password_file),
        "table": f"{shop.schema}.{{table}}",
    }
    created(folder, "in", [f"in{shop.schema}.{shop.schema}.items"], into)
    created(folder, "out", [shop.topic, others], sink.spec)
    events.start()
    eventually(lambda: sink.run("SELECT 1 FROM items WHERE id > 30000 LIMIT 1"), "both feeds work")

    # The sink is changed first: nobody notices anything. The table is another one afterwards.
    sink.run("ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7")
    asked = shop.submit("online", "ADD COLUMN extra int NOT NULL DEFAULT 7")
    assert asked.exit_code == 0, asked.output
    completed("online")
    behind = max(events.rows)
    eventually(lambda: sink.run(f"SELECT 1 FROM items WHERE id > {behind}"), "both feeds go on")
    eventually(lambda: headgate("why", "out").exit_code == 0, "nothing holds the feed")

    # The source is changed first: that table waits, until the sink has the column too.
    asked = headgate(
        *("migration", "submit", f"ALTER TABLE {shop.schema}.items ADD COLUMN more int NOT NULL DEFAULT 8"),
        *("--database", shop.connection),
        *("--id", "direct", "--strategy", "direct", "--yes", "--cutover-threshold", str(CUTOVER_SECONDS)),
    )
    assert asked.exit_code == 0, asked.output
    completed("direct")
    shop.run("INSERT INTO others VALUES (1000, 1)")
    eventually(lambda: sink.run("SELECT 1 FROM others WHERE id = 1000"), "the feed's other table goes on")
    # Between two attempts it is being opened again, and nothing is said of it.
    held = eventually(lambda: reasons("out"), "it says why the table waits")
    assert [reason["span"] for reason in held] == ["public.items"]
    assert "no column more" in held[0]["detail"]
    assert "at the sink" in held[0]["advice"]
    sink.run("ALTER TABLE items ADD COLUMN more int NOT NULL DEFAULT 8")
    behind = max(events.rows)
    eventually(lambda: sink.run(f"SELECT 1 FROM items WHERE id > {behind}"), "the table goes on by itself")

    expected = events.end()
    rows = "SELECT id, v, extra, more FROM items WHERE v <> 0 ORDER BY id"
    whole = [(key, value, 7, 8) for key, value in sorted(expected.items()) if value]
    eventually(lambda: [tuple(row) for row in shop.run(rows)] == whole, "each event is in the table, once")
    eventually(lambda: sink.run(rows) == whole, "each of its changes is in the sink")
