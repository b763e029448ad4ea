"""``headgate verify`` finds a source table that no topic is named like: by the events, or by the feed's word."""

import json
from collections.abc import Callable
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
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate, make_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

SHOP = """
CREATE SCHEMA "Odd Sch"; CREATE SCHEMA "a.b";
CREATE TABLE "Odd Sch"."select" (id int PRIMARY KEY, what text);
CREATE TABLE "a.b"."c.d" (id int PRIMARY KEY, what text);
CREATE TABLE public.copy (id int PRIMARY KEY, what text);
INSERT INTO "Odd Sch"."select" VALUES (1, 'ä'); INSERT INTO "a.b"."c.d" VALUES (1, 'b');
INSERT INTO public.copy VALUES (1, 'ä');
"""


@pytest.fixture
def made(
    settings: Settings, log: KafkaLog, serve: Callable[..., Service], postgres_database: str, tmp_path: Path
) -> Callable[..., Any]:
    """Makes a feed from topic …-Odd_Sch.select into public.copy; the result of verify, with ``more`` options."""
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready")
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute(SHOP)
    topic = f"{settings.cluster}-shop.Odd_Sch.select"
    make_topics(log, NewTopic(topic, 1, 1))
    given = {name: value for name, value in conninfo_to_dict(postgres_database).items() if value is not None}
    password = tmp_path / "password"
    password.write_text(str(given.pop("password", "")), encoding="utf-8")

    def make(name: str, *more: str, **source: Any) -> Any:
        sink = {"type": "postgresql", "dsn": make_conninfo("", **given), "password_file": str(password)}
        spec = {
            "feed": name,
            "source": {"topics": [topic]} | source,
            "sink": sink | {"table": "public.copy", "not_the_source": True},
        }
        if "topic_tables" in source:
            spec["source"]["topic_tables"] = {topic: source["topic_tables"]}
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(spec), encoding="utf-8")
        created = headgate("feed", "create", str(file))
        assert created.exit_code == 0, created.stderr
        # No agent runs, so the feed applies nothing: rows that differ are not settled.
        verified = headgate("verify", name, "--source-dsn", postgres_database, "-o", "json", "--wait", "0", *more)
        assert headgate("feed", "delete", name, "--yes").exit_code == 0
        return verified

    def with_event(name: str, **source: Any) -> Any:
        event = {
            "op": "c",
            "after": {"id": 1, "what": "ä"},
            "source": {"connector": "postgresql", "db": "x", "schema": "Odd Sch", "table": "select"},
        }
        with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
            producer.produce(topic, json.dumps(event).encode(), b'{"id": 1}')
            assert producer.flush(ANSWER_SECONDS) == 0
        return make(name, **source)

    make.with_event = with_event  # type: ignore[attr-defined]
    return make


def test_by_the_feeds_word_by_the_events_and_neither(made: Any) -> None:
    unknown = made("silent")
    assert unknown.exit_code == ExitCode.DATABASE
    assert "source.topic_tables" in unknown.stderr
    by_event = made.with_event("told")
    assert by_event.exit_code == 0, by_event.stderr
    assert [table["source"] for table in json.loads(by_event.stdout)["tables"]] == ["Odd Sch.select"]
    by_feed = made("said", topic_tables='"a.b"."c.d"')
    assert by_feed.exit_code == ExitCode.UNSETTLED, "another table, as the feed says"
    assert [table["source"] for table in json.loads(by_feed.stdout)["tables"]] == ['"a.b"."c.d"']


def test_mistakes_name_what_was_meant_and_what_to_do(made: Any, postgres_database: str) -> None:
    misspelled = made("table", "--table", "public.cpy")
    assert misspelled.exit_code == ExitCode.NOT_FOUND
    assert "Did you mean 'public.copy'?" in misspelled.stderr
    stranger = made("user", "--source-dsn", make_conninfo(postgres_database, user="nobody_here"))
    assert stranger.exit_code == ExitCode.DATABASE
    assert "nobody_here" in stranger.stderr
    assert "--source-dsn" in stranger.stderr
    away = made("port", "--source-dsn", "host=127.0.0.1 port=1 dbname=shop user=reader")
    assert away.exit_code == ExitCode.DATABASE
    assert "at 127.0.0.1:1" in away.stderr
    assert "correct host and port in --source-dsn" in away.stderr
