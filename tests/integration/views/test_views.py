"""``headgate serve views``: Faust on a real broker says what the command says, and again after it was killed."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from msgspec.structs import replace

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.connection import GROUP_PASSING_CODES
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.lasting_reader import STALL_SECONDS
from headgate.eventlog.replay import read_to_end
from headgate.eventlog.snapshot import all_partitions
from headgate.eventlog.topics import create_topics
from headgate.records.base import Fact
from headgate.records.keys import FeedKey, FeedProgressKey, SessionKey
from headgate.views.routes import ROUTES
from headgate_lab.embedded.broker import EmbeddedKafka
from integration.cli.conftest import ROWS, Service, headgate
from integration.examples.conftest import example
from support import build
from support.codec import encode
from support.eventlog_contract import ended
from support.kafka_cluster import ANSWER_SECONDS
from support.lost_ends import PATIENT
from support.topic_changes import make_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]

AGENT_SECONDS = 600.0
"""For a Spark to start beside another one, on two cores that do other things as well."""

RELATIVE = ("heartbeat", "heard")
"""Said by the command for people: how long ago something was."""

MOVING = ("heartbeats", "announced_ms", "load_bytes_per_s")
"""Grows with every heartbeat; compared by asking again."""


@pytest.fixture(autouse=True)
def any_port(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setenv("HEADGATE_VIEWS__PORT", "0")


def ask(views: Service, path: str) -> tuple[int, Any]:
    rebuilt = eventually(lambda: views.said("rebuilt"), "the views have been rebuilt")
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{rebuilt['views_port']}{path}", timeout=ANSWER_SECONDS
        ) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def answer(views: Service, path: str) -> Any:
    status, found = ask(views, path)
    assert status == 200, found
    return found


def said_by_command(*arguments: str) -> Any:
    result = headgate(*arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def still(rows: Any) -> Any:
    """Without what is relative to the moment of asking."""
    if isinstance(rows, list):
        return [still(row) for row in rows]
    return {name: value for name, value in rows.items() if name not in RELATIVE}


def same(views: Service, path: str, *command: str) -> None:
    """The views' answer is the command's; asked again for as long as something happens between the two."""

    def agree() -> bool:
        before = said_by_command(*command)
        answered = answer(views, path)
        after = said_by_command(*command)
        return still(answered) in (still(before), still(after))

    eventually(agree, f"{path} says what `headgate {' '.join(command)}` says")


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["kind"] for event in events]


def committed(settings: Settings, feed: str, topic: str, partitions: int) -> list[int]:
    """A feed's positions as a tool that shows lag sees them. Empty while no broker answers for the group."""
    consumer = Consumer({"bootstrap.servers": settings.bootstrap, "group.id": f"{settings.prefix}feed.{feed}"})
    try:
        found = consumer.committed(
            [TopicPartition(topic, number) for number in range(partitions)], timeout=ANSWER_SECONDS
        )
        return [each.offset for each in found]
    except KafkaException as error:
        if error.args[0].code() not in GROUP_PASSING_CODES:
            raise
        return []
    finally:
        consumer.close()


def test_a_feeds_positions_are_a_consumer_group(settings: Settings, log: KafkaLog, serve: Serve) -> None:
    topic = f"{settings.prefix}source"
    make_topics(log.connection.admin, NewTopic(topic, 2, 1))
    feed = build.feed_of(topic, "a", "b", partitions=2)
    progress = build.feed_progressed(
        feed_id=feed.feed_id, incarnation=0, positions={"a": {0: 7, 1: 3}, "b": {0: 5, 1: 9}}
    )
    put(settings, "changefeed", *encode(Fact(FeedKey("f"), feed)))
    put(settings, "checkpoint", *encode(Fact(FeedProgressKey("f"), progress)))
    views = serve("views", "views")
    eventually(lambda: committed(settings, "f", topic, 2) == [5, 3], "the least of what its tables have")
    further = replace(progress, positions={"a": {0: 7, 1: 3}, "b": {0: 8, 1: 9}})
    put(settings, "checkpoint", *encode(Fact(FeedProgressKey("f"), further)))
    eventually(lambda: committed(settings, "f", topic, 2) == [7, 3], "it goes on")
    put(settings, "changefeed", b"f", None)
    eventually(lambda: committed(settings, "f", topic, 2) == [OFFSET_INVALID] * 2, "the feed is gone, and its group")
    assert "not shown as a consumer group" not in views.log_file.read_text(encoding="utf-8")


Place = tuple[str, int, int]
"""Topic, partition, offset."""


def place(event: dict[str, Any]) -> Place:
    return event["topic"], event["partition"], event["offset"]


def places_left(log: KafkaLog) -> set[Place]:
    partitions = all_partitions(log)
    return {
        (read.partition.topic, read.partition.number, read.offset)
        for read in read_to_end(log, partitions, dict.fromkeys(partitions, 0))
    }


def newest_of(events: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    """The last offset of each partition that has events."""
    return {place(event)[:2]: place(event)[2] for event in sorted(events, key=place)}


def told_but_for_compaction(
    before: list[dict[str, Any]], again: list[dict[str, Any]], left: set[Place], newest: dict[tuple[str, int], int]
) -> None:
    """Nothing is told that was not, but what was found and what the services, which go on, have written behind the
    ``newest``; and nothing is missing whose records are all there.
    """
    found = {place(event) for event in again if event["kind"].endswith("_found")}
    found |= {at for event in again if (at := place(event))[2] > newest.get(at[:2], -1)}
    told = [event for event in again if place(event) not in found]
    assert told == [event for event in before if event in again and place(event) not in found]
    for event in before:
        assert event in again or place(event) not in left or place(event) in found, event


def moved(settings: Settings, span: str, source: str, target: str) -> bool:
    """Whether the table was moved on request. A busy machine can cost an agent its lease, so it may be there already,
    where it is brought back first, or on its way.
    """
    where = {row["span"]: row["agent"] for row in said_by_command("table", "list")}[span]
    wanted = source if where == target else target
    request = (settings.bootstrap, "shop", span, wanted, "--cluster", settings.cluster)
    return example("request_a_move.py", *request).returncode == 0 and wanted == target


@pytest.mark.spark
@pytest.mark.usefixtures("one_core_spark")
def test_views_say_what_the_command_says_and_again_after_a_kill(
    settings: Settings, shop_file: Path, serve: Serve, log: KafkaLog
) -> None:
    owner = serve("owner", "coordinator")
    views = serve("views", "views")
    first = serve("first", "agent", "--name", "a1")
    eventually(lambda: first.get("/readyz")[0] == 200, "the agent is ready", AGENT_SECONDS)
    eventually(lambda: views.said("rebuilt"), "the views will see every report")
    created = headgate("feed", "create", str(shop_file), "--timeout", "120")
    assert created.exit_code == 0, created.stderr
    eventually(lambda: ask(views, "/v1/feeds/shop")[1].get("rows") == ROWS, "all rows have come, say the views")
    eventually(lambda: views.get("/readyz")[0] == 200, "the views are ready")

    same(views, "/v1/feeds", "feed", "list")
    same(views, "/v1/feeds/shop", "feed", "show", "shop")
    same(views, "/v1/tables", "table", "list")
    same(views, "/v1/tables?feed=shop", "table", "list", "shop")
    same(views, "/v1/agents", "agent", "list", "--dead")
    same(views, "/v1/owners", "coordinator", "list")

    (table,) = said_by_command("table", "list")
    name = quote(table["span"])
    points = answer(views, f"/v1/feeds/shop/tables/{name}/lag")
    assert sum(point["rows"] for point in points) == ROWS
    assert all(point["to_ms"] - point["from_ms"] == 30_000 for point in points)

    second = serve("second", "agent", "--name", "a2")
    eventually(lambda: second.get("/readyz")[0] == 200, "the other agent is ready", AGENT_SECONDS)
    eventually(lambda: moved(settings, table["span"], "a1", "a2"), "a program not ours moves the table")
    dispatched = example("read_topics.py", settings.bootstrap, "dispatch", "--cluster", settings.cluster)
    (span,) = [line for line in map(json.loads, dispatched.stdout.splitlines()) if line["type"] == "SpanDispatched"]
    assert span["value"]["primary"]["agent"] == "a2"
    second.process.send_signal(signal.SIGKILL)
    eventually(lambda: said_by_command("table", "list")[0]["agent"] == "a1", "the first agent has it again")
    standby = serve("standby", "coordinator")
    eventually(lambda: standby.get("/readyz")[0] == 200, "the standby knows the owner")
    owner.process.send_signal(signal.SIGKILL)
    owners = eventually(
        lambda: [event for event in answer(views, "/v1/owners/0/history") if event.get("is_failover")],
        "the views tell of the owner's failover",
    )
    assert kinds(owners) == ["owner_took_over"]
    same(views, "/v1/tables", "table", "list")
    same(views, "/v1/owners", "coordinator", "list")

    timeline = answer(views, "/v1/timeline")
    told = [(event["kind"], event.get("agent"), event.get("is_failover", False)) for event in timeline]
    expected = [
        ("assigned", "a1", False),
        ("move_begun", "a2", False),
        ("moved", "a2", False),
        ("session_lost", "a2", True),
        ("assigned", "a1", False),
        ("owner_took_over", None, True),
    ]
    later = iter(told)  # between them a busy machine can cost an agent its lease
    assert all(each in later for each in expected), told

    paths = [
        "/v1/timeline",
        "/v1/feeds/shop/history",
        f"/v1/feeds/shop/spans/{name}/history",
        "/v1/agents/a2/history",
        "/v1/owners/0/history",
    ]

    def told_by(service: Service) -> dict[str, Any]:
        return {path: answer(service, path) for path in paths}

    told_before = eventually(lambda: told if (told := told_by(views)) == told_by(views) else None, "nothing happens")
    written = {(topic, number): offset for topic, number, offset in sorted(places_left(log))}
    newest = written | newest_of(told_before["/v1/timeline"])
    views.process.send_signal(signal.SIGKILL)
    views.process.wait(ANSWER_SECONDS)
    again = serve("again", "views")
    told_again = told_by(again)
    left = places_left(log)
    for path in paths:
        told_but_for_compaction(told_before[path], told_again[path], left, newest)
    same(again, "/v1/feeds/shop", "feed", "show", "shop")
    for service in (standby, first):
        assert service.process.poll() is None, "owner and agents go on without views"


def put(settings: Settings, topic: str, key: bytes, value: bytes | None, **properties: Any) -> None:
    """One record, aborted if it is of a transaction."""
    with Producer({"bootstrap.servers": settings.bootstrap, **properties}) as producer:
        if properties:
            producer.init_transactions(30)
            producer.begin_transaction()
        producer.produce(f"{settings.prefix}{topic}", key=key, value=value, partition=0)
        producer.flush(ANSWER_SECONDS)
        if properties:
            producer.abort_transaction(30)


def test_an_aborted_record_garbage_and_tombstones(settings: Settings, log: KafkaLog, serve: Serve) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1")])
    fact = ended("s2").fact
    put(settings, "dispatch", *encode(fact), **{"transactional.id": "stranger"})
    put(settings, "dispatch", b"what is this", b"?")
    views = serve("views", "views")
    agent = ended("s1").fact.key
    assert isinstance(agent, SessionKey)
    history = answer(views, f"/v1/agents/{agent.agent}/history")
    assert [event["session"] for event in history] == ["s1"], "the aborted record is nobody's"
    assert answer(views, "/v1/feeds") == []
    put(settings, "dispatch", agent.text().encode(), None)
    put(settings, "dispatch", *encode(ended("s3").fact))
    eventually(
        lambda: [event["session"] for event in answer(views, f"/v1/agents/{agent.agent}/history")] == ["s1", "s3"],
        "what is written later is seen, and a tombstone is no event",
    )
    views.process.send_signal(signal.SIGTERM)
    assert views.process.wait(ANSWER_SECONDS) == ExitCode.DONE
    groups = log.connection.admin.list_consumer_groups().result(ANSWER_SECONDS).valid
    assert not [group for group in groups if group.group_id.startswith(f"{settings.prefix}views.")]
    names = set(log.connection.admin.list_topics(timeout=ANSWER_SECONDS).topics)
    assert not [name for name in names if "views." in name], "no topic was made"


def test_every_answer_has_the_shape_that_is_described(log: KafkaLog, serve: Serve) -> None:
    owner, views = serve("owner", "coordinator"), serve("views", "views")
    eventually(lambda: owner.get("/readyz")[0] == 200, "there is an owner")
    described = answer(views, "/openapi.json")
    assert set(described["paths"]) == {route.path for route in ROUTES}
    for route in ROUTES:
        status, found = ask(
            views, route.path.format(feed="f", span="s", table="t", agent="a", shard="0", migration="m")
        )
        if status == 200:
            msgspec.convert(found, route.kind)
        else:
            assert (status, found["name"]) == (404, "not_found"), route.path
    assert ask(views, "/v1/feeds?limit=1")[1]["message"].startswith("limit is not a parameter of /v1/feeds")
    assert ask(views, "/v1/timeline?limit=many")[0] == 400
    status, found = ask(views, "/v1/tables?feed=none")
    assert (status, found["message"]) == (404, "feed 'none' does not exist. There are none yet")
    assert ask(views, "/v1/owners/x/history")[0] == 404
    for unknown in ("/nope", "/v1", "/v1/feed", "/readyz"):
        status, found = ask(views, unknown)
        assert (status, found["name"]) == (404, "unknown_path")
        assert f"{unknown} is not a path of the views" in found["message"]
        assert "/v1/feeds/{feed}/history" in found["message"]
    assert answer(views, "/v1/migrations") == []
    assert "headgate_views_records_total" in views.get("/metrics")[1]


def test_what_the_views_cannot_go_on_from_ends_them(
    settings: Settings, log: KafkaLog, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("HEADGATE_VIEWS__PORT", str(taken.getsockname()[1]))
        refused = serve("refused", "views")
        assert refused.process.wait(ANSWER_SECONDS) == ExitCode.PORT_TAKEN
        assert "HEADGATE_VIEWS__PORT" in refused.log_file.read_text(encoding="utf-8")
    monkeypatch.setenv("HEADGATE_VIEWS__PORT", "0")
    views = serve("views", "views")
    assert answer(views, "/v1/feeds") == []
    put(settings, "announce", b"agent/a/s", b"\x00" + (1099).to_bytes(4, "big") + b"whatever")
    assert views.process.wait(ANSWER_SECONDS) == ExitCode.NEWER_SCHEMA
    assert "Traceback" not in views.log_file.read_text(encoding="utf-8")


def test_views_that_no_broker_answers_are_not_ready_and_say_how_old_they_are(
    settings: Settings, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedKafka(tmp_path / "kafka", settings=PATIENT) as broker:
        monkeypatch.setenv("HEADGATE_BOOTSTRAP", broker.bootstrap)
        create_topics(replace(settings, bootstrap=broker.bootstrap))
        views = serve("views", "views")
        eventually(lambda: views.get("/readyz")[0] == 200, "the views are ready")
        assert age(views) < STALL_SECONDS
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            eventually(lambda: "no broker has answered for" in views.get("/readyz")[1], "the views know")
            assert views.get("/readyz")[0] == 503
            assert age(views) >= STALL_SECONDS
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        eventually(lambda: views.get("/readyz")[0] == 200, "the views are ready again")


def age(views: Service) -> int:
    """Seconds, as the header of an answer has them."""
    port = eventually(lambda: views.said("rebuilt"), "the views have been rebuilt")["views_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/feeds", timeout=ANSWER_SECONDS) as answer:
        return int(answer.headers["Age"])
