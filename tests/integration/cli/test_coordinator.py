"""The coordinator as a process: who owns, who takes over, and how requests are answered."""

import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
import structlog
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.services import mariadb_execute
from headgate.app.exit_codes import ExitCode
from headgate.config.feed import parse_feed
from headgate.config.settings import Settings
from headgate.coordinator.shell.effect_runner import FeedWork
from headgate.coordinator.shell.service import CoordinatorService
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import Snapshot, read_snapshot
from headgate.observability.metrics import new_registry
from headgate.observability.probes import Probes
from headgate.records.control import FeedRecorded, FeedState
from headgate.records.keys import FeedKey
from headgate.runtime.role import RoleState
from headgate.runtime.service import ServiceSettings
from headgate.sinks.contract import FeedIdentity
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate, make_topics
from support import build
from support.topic_changes import add_partitions, delete_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]


def _owns(service: Service) -> bool:
    role = service.said("role")
    return role is not None and role["state"] == "serving"


def _owner_id(log: KafkaLog) -> str | None:
    owner = read_snapshot(log).owner(0)
    return owner.owner_id if owner else None


def _pid_owns(log: KafkaLog, service: Service) -> bool:
    owner = _owner_id(log)
    return owner is not None and owner.endswith(f"-{service.process.pid}")


def test_killed_owner_is_replaced_and_a_resigning_one_at_once(log: KafkaLog, serve: Serve) -> None:
    first = serve("first", "coordinator")
    eventually(lambda: _owns(first), "the first owns the shard")
    second = serve("second", "coordinator")
    eventually(lambda: second.get("/readyz")[0] == 200, "the standby has replayed and knows the owner")
    assert not _owns(second)
    assert "headgate_role_owner{" in second.get("/metrics")[1]
    assert 'headgate_role_owner{shard="0"} 1.0' in first.get("/metrics")[1]

    first.process.send_signal(signal.SIGKILL)
    first.process.wait(ANSWER_SECONDS)
    eventually(lambda: _owns(second) and _pid_owns(log, second), "the second has taken over")

    third = serve("third", "coordinator")
    eventually(lambda: third.get("/readyz")[0] == 200, "the third stands by")
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(ANSWER_SECONDS) == ExitCode.DONE
    assert second.lines()[-1]["event"] == "stopped"
    eventually(lambda: _owns(third) and _pid_owns(log, third), "the third has taken over")


def test_frozen_owner_finds_out_when_it_thaws(log: KafkaLog, serve: Serve) -> None:
    first = serve("first", "coordinator")
    eventually(lambda: _owns(first), "the first owns the shard")
    second = serve("second", "coordinator")
    eventually(lambda: second.get("/readyz")[0] == 200, "the second stands by")
    first.process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: _owns(second), "the second has taken over")
    finally:
        first.process.send_signal(signal.SIGCONT)

    def stands_by() -> bool:
        role = first.said("role")
        second_id = _owner_id(log)
        return role is not None and role["state"] == "standby" and role["owner"] == second_id and role["replayed"]

    eventually(stands_by, "the first is a standby of the second")
    assert _pid_owns(log, second)
    assert 'headgate_role_falls_total{shard="0"} 0.0' not in first.get("/metrics")[1]
    assert {line["level"] for line in first.lines()} <= {"info", "warning"}, "to be fenced is nothing critical"
    assert sum("fenced" in str(line) for line in first.lines()) <= 1


def test_tail_prints_records_as_lines(log: KafkaLog, owner: CoordinatorService) -> None:
    def tail(*options: str) -> str:
        result = headgate("topic", "tail", "announce", "--from-beginning", "--seconds", "1", *options)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def announced() -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [json.loads(line) for line in tail("-o", "json").splitlines()]
        said = {(line["topic"], line["key"].partition("/")[0], line["type"]) for line in lines}
        expected = {("announce", "coordinator", "OwnerAnnounced"), ("announce", "member", "MemberAnnounced")}
        assert said <= expected
        return lines if said == expected else []

    lines = eventually(announced, "a second is enough to read them")
    first = next(line for line in lines if line["key"] == "coordinator/0")
    assert first["value"]["owner_rev"] is None
    wanted = re.compile(r"^announce\[0\]@\d+ coordinator/0 OwnerAnnounced \{", re.MULTILINE)
    eventually(lambda: wanted.search(tail()), "they are shown as text as well")


def test_topics_are_created_when_asked_to(settings: Settings, serve: Serve) -> None:
    service = serve("one", "coordinator", "--create-topics")
    eventually(lambda: service.get("/readyz")[0] == 200, "it is ready")
    assert headgate("topic", "list").exit_code == 0


def test_newer_schema_ends_the_process_with_its_code(settings: Settings, log: KafkaLog, serve: Serve) -> None:
    service = serve("one", "coordinator")
    eventually(lambda: _owns(service), "it owns the shard")
    with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
        newer = b"\x00" + (1099).to_bytes(4, "big") + b"whatever"
        producer.produce(f"{settings.prefix}announce", key=b"agent/a/s", value=newer, partition=0)
        assert producer.flush(ANSWER_SECONDS) == 0
    assert service.process.wait(ANSWER_SECONDS) == ExitCode.NEWER_SCHEMA
    said = service.log_file.read_text(encoding="utf-8")
    assert "error:" in said
    assert "newer" in said
    assert "Traceback" not in said


def test_unknown_shard_is_refused(log: KafkaLog) -> None:
    result = headgate("serve", "coordinator", "--shard", "7")
    assert result.exit_code == ExitCode.SETTING
    assert "has shards 0 to 0" in result.stderr


# --- requests -------------------------------------------------------------------------------------------------


class _Shop:
    """A source topic and a target database with one good table, and feeds over them."""

    def __init__(self, settings: Settings, log: KafkaLog, database: str, folder: Path) -> None:
        self.topic = f"{settings.cluster}-src.public.orders"
        self.folder = folder
        self._log = log
        given = {name: value for name, value in conninfo_to_dict(database).items() if value is not None}
        self.password_file = folder / "password"
        self.password_file.write_text(str(given.pop("password", "")), encoding="utf-8")
        self.dsn = make_conninfo("", **given)
        self.make_topic(self.topic)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY, what text)")
            connection.execute("CREATE TABLE keyless (id int)")

    def make_topic(self, name: str, **settings: str) -> None:
        make_topics(self._log, NewTopic(name, 2, 1, config=settings))

    def put(self, topic: str, value: bytes, key: bytes = b"1") -> None:
        """One record."""
        with closing(self._log.connection.client(Producer)) as producer:
            producer.produce(topic, value, key, 0)
            assert producer.flush(ANSWER_SECONDS) == 0

    def file(self, feed: str, **changes: Any) -> str:
        spec = {
            "feed": feed,
            "source": {"topics": [self.topic], "format": "debezium-json"},
            "sink": {"type": "postgresql", "dsn": self.dsn, "password_file": str(self.password_file)},
        }
        for section, values in changes.items():
            spec[section] = {**spec[section], **values}  # type: ignore[dict-item]
        file = self.folder / f"{feed}.yaml"
        file.write_text(yaml.safe_dump(spec), encoding="utf-8")
        return str(file)


@pytest.fixture
def shop(settings: Settings, log: KafkaLog, postgres_database: str, tmp_path: Path) -> _Shop:
    return _Shop(settings, log, postgres_database, tmp_path)


def _feed(log: KafkaLog, name: str) -> FeedRecorded | None:
    snapshot: Snapshot = read_snapshot(log)
    return snapshot.get(FeedKey(name), FeedRecorded)


@pytest.fixture
def owner(settings: Settings, log: KafkaLog) -> Iterator[CoordinatorService]:
    """A coordinator in this process."""
    service = CoordinatorService(
        ServiceSettings(
            cluster=settings.cluster,
            shards=(0,),
            lease_seconds=settings.lease_seconds,
            holder_lease_seconds=settings.lease_seconds,
            shutdown_seconds=ANSWER_SECONDS,
        ),
        log,
        FeedWork(log.connection, cluster_id=log.cluster_id, own_prefix=settings.prefix),
        probes=Probes(60),
        registry=new_registry(),
    )
    # Its threads log while a command in this process prints its JSON to what the runner has put for stdout.
    structlog.reset_defaults()  # an earlier command in this process may have set up logging for itself
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(service.run()))
    thread.start()
    eventually(lambda: service.roles[0].status.state is RoleState.SERVING, "it owns the shard")
    yield service
    service.stop()
    thread.join(2 * ANSWER_SECONDS)
    structlog.reset_defaults()
    assert results == [True], "it did not resign in time"


def test_a_feed_from_creation_to_removal(log: KafkaLog, owner: CoordinatorService, shop: _Shop) -> None:
    created = headgate("feed", "create", shop.file("shop"), "-o", "json")
    assert created.exit_code == 0, created.stderr
    assert json.loads(created.stdout)["status"] == "done"
    feed = _feed(log, "shop")
    assert feed is not None
    assert [(plan.table, plan.topic, plan.start) for plan in feed.spans] == [
        ("public.orders", shop.topic, {0: 0, 1: 0})
    ]
    (row,) = json.loads(headgate("feed", "list", "-o", "json").stdout)
    assert (row["feed"], row["tables"], row["replicating"]) == ("shop", 1, 0)
    shown = json.loads(headgate("feed", "show", "shop", "-o", "json").stdout)
    assert [span["table"] for span in shown["spans"]] == ["public.orders"]

    why = headgate("why", "shop", "-o", "json")
    assert why.exit_code == ExitCode.HELD
    assert [(reason["table"], reason["stage"]) for reason in json.loads(why.stdout)["reasons"]] == [
        ("public.orders", "agent missing")
    ]
    everything = headgate("why")
    assert everything.exit_code == ExitCode.HELD
    assert everything.stdout.splitlines()[1].split()[:2] == ["shop", "public.orders"]
    everything = headgate("why", "-o", "json")
    assert everything.exit_code == ExitCode.HELD
    assert json.loads(everything.stdout) == {"feeds": [json.loads(why.stdout)], "migrations": [], "held": True}

    again = headgate("feed", "create", shop.file("shop"))
    assert again.exit_code == ExitCode.REQUEST_REFUSED
    second = headgate("feed", "create", shop.file("other"))
    assert second.exit_code == ExitCode.SINK_REFUSED
    assert "public.orders" in second.stderr

    paused = headgate("feed", "pause", "shop")
    assert paused.exit_code == 0, paused.stderr
    held = headgate("why", "shop")
    assert held.exit_code == ExitCode.HELD
    assert "headgate feed resume shop" in held.stderr
    feed = _feed(log, "shop")
    assert feed is not None
    assert feed.state is FeedState.STOPPED
    _change_while_stopped(log, shop)
    removed = headgate("feed", "delete", "shop", "--yes")
    assert removed.exit_code == 0, removed.stderr
    assert headgate("feed", "show", "shop").exit_code == ExitCode.NOT_FOUND
    # Whoever asks deletes its requests, and their owner the outcomes: nothing of them is left.
    eventually(lambda: json.loads(headgate("topic", "show", "changefeed", "-o", "json").stdout) == [], "all is gone")


def _skip_records(log: KafkaLog, shop: _Shop) -> None:
    """Records that are named go into the feed's description with the topic's id; a feed that is paused stays so."""
    unread = headgate("feed", "skip", "shop", "other.topic/0/1")
    assert unread.exit_code == ExitCode.FEED_SPEC, unread.stderr
    assert "the feed does not read topic other.topic" in unread.stderr
    assert headgate("feed", "skip", "shop", shop.topic).exit_code == ExitCode.USAGE
    skipped = headgate("feed", "skip", "shop", f"{shop.topic}/0/17", f"{shop.topic}/1/4")
    assert skipped.exit_code == 0, skipped.stderr
    feed = _feed(log, "shop")
    assert feed is not None
    assert (feed.revision, feed.state) == (2, FeedState.STOPPED)
    (plan,) = feed.spans
    assert json.loads(feed.spec)["skip"] == [
        {"record": f"{shop.topic}/0/17", "topic_id": plan.topic_id},
        {"record": f"{shop.topic}/1/4", "topic_id": plan.topic_id},
    ]
    assert "already" not in skipped.stderr


def _change_while_stopped(log: KafkaLog, shop: _Shop) -> None:
    """Update, and resume from somewhere: accepted where it can be, else refused by name; it runs afterwards."""
    other_sink = headgate("feed", "update", shop.file("shop", sink={"table": "public.keyless"}))
    assert other_sink.exit_code == ExitCode.SINK_REFUSED
    updated = headgate("feed", "update", shop.file("shop", source={"unavailable_value": "gone"}))
    assert updated.exit_code == 0, updated.stderr
    feed = _feed(log, "shop")
    assert feed is not None
    assert (feed.revision, feed.state) == (1, FeedState.STOPPED)
    assert json.loads(feed.spec)["source"]["unavailable_value"] == "gone"

    _skip_records(log, shop)

    offsets = shop.folder / "offsets.json"
    for given, said, code in (
        ({"0": 0}, "but the feed reads [0, 1]", ExitCode.REQUEST_REFUSED),
        ({"0": 5, "1": 0}, "deleted and re-created", ExitCode.SOURCE),
    ):
        offsets.write_text(json.dumps({shop.topic: given}), encoding="utf-8")
        refused = headgate("feed", "resume", "shop", "--from", str(offsets), "--yes")
        assert refused.exit_code == code, refused.stderr
        assert said in refused.stderr
    assert headgate("feed", "resume", "shop", "--from", "yesterday").exit_code == ExitCode.USAGE
    resumed = headgate("feed", "resume", "shop", "--from", "earliest", "--yes")
    assert resumed.exit_code == 0, resumed.stderr
    feed = _feed(log, "shop")
    assert feed is not None
    assert (feed.incarnation, feed.state) == (2, FeedState.NORMAL)
    assert [plan.start for plan in feed.spans] == [{0: 0, 1: 0}]

    running = headgate("feed", "update", shop.file("shop"))
    assert running.exit_code == 0, running.stderr
    refused = headgate("feed", "update", shop.file("shop", sink={"table": "public.keyless"}))
    assert refused.exit_code == ExitCode.SINK_REFUSED
    feed = _feed(log, "shop")
    assert feed is not None
    assert (feed.revision, feed.incarnation, feed.state) == (3, 2, FeedState.NORMAL), "it goes on, changed or not"
    assert "unavailable_value" not in json.loads(feed.spec)["source"]


def test_what_is_asked_of_shards_and_agents(log: KafkaLog, owner: CoordinatorService) -> None:
    drained = headgate("agent", "drain", "nobody")
    assert drained.exit_code == ExitCode.NOT_FOUND
    assert "agent 'nobody' is not alive" in drained.stderr
    rebalanced = headgate("feed", "rebalance", "nofeed")
    assert rebalanced.exit_code == ExitCode.NOT_FOUND
    everything = headgate("feed", "rebalance")
    assert everything.exit_code == 0, everything.stderr
    assert "no feed runs here" in everything.stderr
    (row,) = json.loads(headgate("coordinator", "list", "-o", "json").stdout)
    assert row["shard"] == 0
    assert row["owner"]
    assert headgate("coordinator", "resign", "--shard", "1").exit_code == ExitCode.USAGE
    term = owner.roles[0].status.owner_rev
    resigned = headgate("coordinator", "resign")
    assert resigned.exit_code == 0, resigned.stderr
    assert str(term) in resigned.stderr
    eventually(lambda: owner.roles[0].status.owner_rev not in (None, term), "alone, it takes over again")


NO_REGISTRY = {"format": "debezium-avro", "registry": {"url": "http://127.0.0.1:1"}}
REFUSALS: list[tuple[dict[str, Any], str, ExitCode]] = [
    ({"source": {"format": "debezium-json", "start_ts": "2199-01-01T00:00:00Z"}}, "is in the future", ExitCode.SOURCE),
    ({"source": {"topics": ["nowhere.public.x"]}}, "source topic nowhere.public.x does not exist", ExitCode.SOURCE),
    ({"sink": {"table": "public.nothing"}}, "public.nothing", ExitCode.SINK_REFUSED),
    ({"sink": {"table": "public.keyless"}}, "key", ExitCode.SINK_REFUSED),
    ({"sink": {"table": "{database}.x"}}, "choose from {schema}", ExitCode.SOURCE),
    (
        {"source": {"tables": ["public.orders", "sales.orders"]}, "sink": {"table": "public.{table}"}},
        "public.orders and sales.orders of source.tables both go to table public.orders",
        ExitCode.SOURCE,
    ),
    ({"source": {"tables": ["public.orders", "public.nothing"]}}, "public.nothing", ExitCode.SINK_REFUSED),
    (
        {"source": NO_REGISTRY},
        "registry_unavailable: source.registry: the schema registry at http://127.0.0.1:1",
        ExitCode.SOURCE,
    ),
    (
        {"sink": {"dsn": "host=127.0.0.1 port=1 dbname=x connect_timeout=5"}},
        "sink_unavailable",
        ExitCode.SINK_UNAVAILABLE,
    ),
]


def test_a_feed_that_cannot_be_is_refused_with_its_reason(
    log: KafkaLog, owner: CoordinatorService, shop: _Shop
) -> None:
    for changes, said, code in REFUSALS:
        file = shop.file("shop", **changes)
        for options in ([], ["--dry-run"]):
            result = headgate("feed", "create", file, *options)
            assert result.exit_code == code, (changes, options, result.stderr)
            assert said in result.stderr, (changes, options)
    assert _feed(log, "shop") is None


def test_a_topic_of_several_tables(
    log: KafkaLog, owner: CoordinatorService, shop: _Shop, postgres_database: str
) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("CREATE TABLE items (id int PRIMARY KEY); CREATE TABLE more (id int PRIMARY KEY)")
    created = headgate("feed", "create", shop.file("shop", source={"tables": ["public.orders", "public.items"]}))
    assert created.exit_code == 0, created.stderr
    feed = _feed(log, "shop")
    assert feed is not None
    assert [(plan.span, plan.topic, plan.start) for plan in feed.spans] == [
        ("public.items", shop.topic, {0: 0, 1: 0}),
        ("public.orders", shop.topic, {0: 0, 1: 0}),
    ]
    split = headgate("table", "split", "shop", "public.orders", "--parts", "2")
    assert split.exit_code == ExitCode.REQUEST_REFUSED
    assert "its topic carries other tables, too (source.tables)" in split.stderr

    assert headgate("feed", "pause", "shop").exit_code == 0
    fewer = headgate("feed", "update", shop.file("shop", source={"tables": ["public.orders"]}))
    assert fewer.exit_code == ExitCode.REQUEST_REFUSED
    assert "none may leave" in fewer.stderr
    tables = ["public.more", "public.orders", "public.items"]
    grown = headgate("feed", "update", shop.file("shop", source={"tables": tables}))
    assert grown.exit_code == 0, grown.stderr
    assert "1 table added: public.more" in grown.stderr


STRAY = (
    b'{"database":"d","table":"t","type":"insert","ts":1,"data":{"id":1}}',
    b'{"database":"d","table":"t","pk.id":1}',
)
CREATED = (b'{"op":"c","before":null,"after":{"id":1},"source":{"connector":"postgresql"}}', b'{"id":1}')


def test_a_feed_without_tables_gets_them_when_their_topics_come(
    log: KafkaLog, serve: Serve, shop: _Shop, postgres_database: str, settings: Settings
) -> None:
    serve("one", "coordinator")
    prefix = f"{settings.cluster}-late."
    file = shop.file("late", source={"topics": [], "topic_pattern": f"{prefix}.*"})
    dry = headgate("feed", "create", file, "--dry-run", "-o", "json")
    assert "no topic matches" in json.loads(dry.stdout)["note"], dry.stderr
    created = headgate("feed", "create", file)
    assert created.exit_code == 0, created.stderr
    assert "created with 0 tables: no topic matches source.topic_pattern" in created.stderr
    shown = json.loads(headgate("feed", "show", "late", "-o", "json").stdout)
    assert (shown["state"], shown["tables"], shown["spans"]) == ("normal", 0, [])
    assert "no topic matches" in shown["notices"][0]
    why = headgate("why", "late")
    assert why.exit_code == ExitCode.HELD
    assert "it has no table yet" in why.stderr

    def tables() -> list[tuple[str, str]]:
        feed = _feed(log, "late")
        return [] if feed is None else [(plan.table, plan.topic) for plan in feed.spans]

    def notices() -> str:
        return " ".join(json.loads(headgate("feed", "show", "late", "-o", "json").stdout)["notices"])

    shop.make_topic(f"{prefix}public.orders", **{"cleanup.policy": "compact"})
    shop.make_topic(f"{prefix}x.public.orders")
    shop.make_topic(f"{prefix}public.stray")
    waiting = f"because they have no records: {prefix}public.orders, {prefix}public.stray"
    eventually(lambda: waiting in notices(), "topics without records are reported")
    assert tables() == [], "nobody knows their format"
    shop.put(f"{prefix}public.stray", *STRAY)
    shop.put(f"{prefix}public.orders", *CREATED)

    eventually(lambda: len(tables()) == 1, "the table joins")
    ((table, topic),) = tables()
    assert table == "public.orders"
    told = json.loads(headgate("why", "late", "-o", "json").stdout)
    assert [reason["table"] for reason in told["reasons"]] == ["public.orders"]
    assert any("is left out, because topic" in line for line in told["feed_held_by"])

    # The same checks as at creation: what is wrong is left out, what is only a hazard is said and stays.
    stray = f"topic {prefix}public.stray is left out: none of the 1 newest records"
    eventually(lambda: stray in notices(), "the topic in another format is reported")
    assert "They are maxwell-json" in notices()
    eventually(lambda: f"warning: topic {topic} is compacted" in notices(), "the hazard is reported")
    assert "warning" not in headgate("why", "late").stderr

    add_partitions(log.connection.admin, topic, 5)

    def grown() -> bool:
        feed = _feed(log, "late")
        return feed is not None and (feed.error_code, feed.state) == ("source_partitions_grown", FeedState.STOPPED)

    eventually(grown, "the feed is stopped")
    assert "has 5 partitions, the feed started with 2" in " ".join(headgate("why", "late").stderr.split())
    resumed = headgate("feed", "resume", "late")
    assert resumed.exit_code == ExitCode.REQUEST_REFUSED
    assert "cannot continue" in resumed.stderr
    assert headgate("feed", "delete", "late", "--yes").exit_code == 0


def test_a_feed_of_a_compacted_topic_is_made_with_a_warning(owner: CoordinatorService, shop: _Shop) -> None:
    topic = f"{shop.topic.rpartition('.')[0]}.keyed"
    shop.make_topic(topic, **{"cleanup.policy": "compact,delete"})
    file = shop.file("keyed", source={"topics": [topic]}, sink={"table": "public.orders"})
    warning = f"warning: topic {topic} is compacted"
    dry = headgate("feed", "create", file, "--dry-run", "-o", "json")
    assert json.loads(dry.stdout)["warnings"][0].startswith(warning), dry.stderr
    assert warning in " ".join(headgate("feed", "create", file, "--dry-run").stderr.split())
    created = headgate("feed", "create", file)
    assert created.exit_code == 0, created.stderr
    assert warning in " ".join((created.stdout + created.stderr).split())
    other = headgate("feed", "create", shop.file("plain"), "--dry-run", "-o", "json")
    assert "compacted" not in other.stdout + other.stderr


def test_a_dry_run_says_what_would_become_of_it_and_writes_nothing(
    log: KafkaLog, owner: CoordinatorService, shop: _Shop
) -> None:
    file = shop.file("shop")
    before = headgate("topic", "show", "changefeed", "-o", "json").stdout
    dry = headgate("feed", "create", file, "--dry-run", "-o", "json")
    assert dry.exit_code == 0, dry.stderr
    assert json.loads(dry.stdout)["spans"] == [
        {
            "table": "public.orders",
            "at_sink": "exists",
            "span": "public.orders",
            "topic": shop.topic,
            "partitions": 2,
            "start": {"0": 0, "1": 0},
        }
    ]
    assert "nothing was written" in headgate("feed", "create", file, "--dry-run").stderr
    update = headgate("feed", "update", file, "--dry-run")
    assert (update.exit_code, "feed 'shop' does not exist" in update.stderr) == (ExitCode.NOT_FOUND, True)
    assert headgate("topic", "show", "changefeed", "-o", "json").stdout == before

    assert headgate("feed", "create", file).exit_code == 0
    again = headgate("feed", "create", file, "--dry-run")
    assert (again.exit_code, "feed 'shop' already exists" in again.stderr) == (ExitCode.REQUEST_REFUSED, True)
    other = headgate("feed", "create", shop.file("other"), "--dry-run")
    assert (other.exit_code, "already written by feed 'shop'" in other.stderr) == (ExitCode.SINK_REFUSED, True)
    assert headgate("feed", "update", file, "--dry-run").exit_code == 0, "it would be paused and resumed"
    assert headgate("feed", "pause", "shop").exit_code == 0
    assert headgate("feed", "update", file, "--dry-run").exit_code == 0
    fixed = headgate("feed", "update", shop.file("shop", sink={"table": "public.keyless"}), "--dry-run")
    assert fixed.exit_code == ExitCode.SINK_REFUSED

    shown = yaml.safe_load(headgate("feed", "show", "shop", "-o", "yaml").stdout)
    assert (shown["state"], shown["spans"][0]["table"]) == ("stopped", "public.orders")
    assert yaml.safe_load(headgate("feed", "list", "-o", "yaml").stdout)[0]["feed"] == "shop"
    back = headgate("feed", "resume", "shop", "--from", "2026-01-01T00:00:00Z", "--yes")
    assert back.exit_code == ExitCode.REQUEST_REFUSED
    assert "cannot go back to a time: its events have the time of each change" in back.stderr


def test_a_folder_of_feeds_is_applied_as_often_as_wanted(log: KafkaLog, owner: CoordinatorService, shop: _Shop) -> None:
    folder = shop.folder / "feeds"
    folder.mkdir()

    def apply(*options: str) -> tuple[int, dict[str, tuple[str, str]]]:
        done = headgate("feed", "apply", str(folder), *options, "-o", "json")
        return done.exit_code, {row["feed"]: (row["act"], row["status"]) for row in json.loads(done.stdout)}

    (folder / "shop.yaml").write_text(Path(shop.file("shop")).read_text(encoding="utf-8"), encoding="utf-8")
    assert apply("--dry-run") == (0, {"shop": ("create", "would be done")})
    assert _feed(log, "shop") is None
    assert apply() == (0, {"shop": ("create", "done")})
    assert apply() == (0, {"shop": ("none", "unchanged")})

    changed = Path(shop.file("shop", source={"unavailable_value": "gone"})).read_text(encoding="utf-8")
    (folder / "shop.yaml").write_text(changed, encoding="utf-8")
    assert apply("--dry-run") == (0, {"shop": ("update", "would be done")})
    (folder / "clash.yaml").write_text(changed.replace("feed: shop", "feed: clash"), encoding="utf-8")
    clash = {"clash": ("create", "failed")}
    assert apply("--dry-run") == (ExitCode.SINK_REFUSED, {**clash, "shop": ("update", "would be done")})
    assert apply() == (ExitCode.SINK_REFUSED, {**clash, "shop": ("update", "done")})
    feed = _feed(log, "shop")
    assert feed is not None
    assert (feed.revision, feed.incarnation, feed.state) == (1, 1, FeedState.NORMAL), (
        "its neighbour's refusal is not its"
    )
    assert json.loads(feed.spec)["source"]["unavailable_value"] == "gone"

    (folder / "shop.yaml").unlink()
    (folder / "clash.yaml").write_text(changed.replace("feed: shop", "feed: other"), encoding="utf-8")
    assert apply("--dry-run", "--prune")[1]["shop"] == ("delete", "would be done")
    assert apply("--prune", "--yes")[1]["shop"] == ("delete", "done")
    assert _feed(log, "shop") is None
    assert apply() == (0, {"other": ("create", "done")}), "its table is free now"


def test_a_table_has_one_writer_under_whatever_address(log: KafkaLog, owner: CoordinatorService, shop: _Shop) -> None:
    assert headgate("feed", "create", shop.file("shop")).exit_code == 0
    other = "127.0.0.1" if "host=127.0.0.1" not in shop.dsn else "localhost"  # a container's port is at both as well
    dsn = make_conninfo(shop.dsn, host=other)
    assert dsn != shop.dsn
    alias = headgate("feed", "create", shop.file("alias", sink={"dsn": dsn}))
    assert alias.exit_code == ExitCode.SINK_REFUSED
    assert "by feed 'shop', under another address of the same database" in alias.stderr


def test_a_feed_into_mariadb_is_checked_as_any_other(
    log: KafkaLog, owner: CoordinatorService, shop: _Shop, mariadb_database: str, tmp_path: Path
) -> None:
    parts = urlsplit(mariadb_database)
    database = parts.path.strip("/")
    mariadb_execute(mariadb_database, "CREATE TABLE orders (id int PRIMARY KEY, what text)")
    mariadb_execute(mariadb_database, "CREATE TABLE keyless (id int)")
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"{unquote(parts.password or '')}\n", encoding="utf-8")
    wrong.write_text("guessed", encoding="utf-8")
    sink = {
        "type": "mysql",
        "dsn": f"mariadb://{parts.username}@{parts.netloc.rpartition('@')[2]}/{database}",
        "password_file": str(right),
        "table": f"{database}.{{table}}",
    }
    for changes, said in (
        ({"table": f"{database}.order"}, f"there is {database}.orders"),
        ({"table": f"{database}.keyless"}, "has no primary key at the sink"),
        ({"password_file": str(wrong)}, "Correct the user in sink.dsn, or the password (sink.password_file)"),
        ({"dsn": "mysql://x@127.0.0.1:1/x"}, "sink_unavailable"),
    ):
        refused = headgate("feed", "create", shop.file("shop", sink=sink | changes))
        code = ExitCode.SINK_UNAVAILABLE if "unavailable" in refused.stderr else ExitCode.SINK_REFUSED
        assert (refused.exit_code, said in refused.stderr) == (code, True), refused.stderr
    created = headgate("feed", "create", shop.file("shop", sink=sink))
    assert created.exit_code == 0, created.stderr
    feed = _feed(log, "shop")
    assert feed is not None
    assert [plan.table for plan in feed.spans] == [f"{database}.orders"]
    assert parse_feed(feed.spec).sink.dsn == str(sink["dsn"]).replace("mariadb://", "mysql://")
    second = headgate("feed", "create", shop.file("second", sink=sink))
    assert (second.exit_code, "already written by feed 'shop'" in second.stderr) == (ExitCode.SINK_REFUSED, True)


def test_a_table_that_another_cluster_writes_is_refused_at_creation(
    log: KafkaLog, owner: CoordinatorService, shop: _Shop, postgres_database: str
) -> None:
    settings = RelationalSettings(dsn=shop.dsn, password_file=shop.password_file)
    stranger = FeedIdentity("another/cluster.", "0-3", "theirs")
    with closing(PostgresSink(settings)) as sink:
        sink.claim(build.claim(identity=stranger, table="public.orders", topic="t", incarnation=1))
    refused = headgate("feed", "create", shop.file("shop"))
    assert refused.exit_code == ExitCode.SINK_REFUSED
    assert "is being written by feed theirs (0-3) of another cluster" in refused.stderr


def test_a_sink_that_is_its_own_source_is_refused(
    settings: Settings, log: KafkaLog, owner: CoordinatorService, shop: _Shop, postgres_database: str
) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as database:
        name = database.info.dbname
        level = database.execute("SHOW wal_level").fetchone()
        assert level == ("logical",), "the test's server is made as a source as well"
        database.execute("CREATE PUBLICATION p FOR TABLE orders")
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        try:
            with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
                _look_for_circles(producer, shop, name)
        finally:
            database.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def _look_for_circles(producer: Producer, shop: _Shop, database: str) -> None:
    def event(**source: str) -> None:
        value = {"op": "c", "after": {"id": 1}, "source": {"connector": "postgresql", "schema": "public", **source}}
        producer.produce(shop.topic, json.dumps(value).encode(), b'{"id":1}', 1)
        producer.produce(shop.topic, None, b'{"id":1}', 1)
        assert producer.flush(ANSWER_SECONDS) == 0

    for other in ({"db": "elsewhere", "table": "orders"}, {"db": database, "table": "keyless"}):
        event(**other)
        assert headgate("feed", "create", shop.file("shop"), "--dry-run").exit_code == 0, other
    event(db=database, table="orders")
    refused = headgate("feed", "create", shop.file("shop"))
    assert refused.exit_code == ExitCode.SINK_REFUSED
    assert f"is the source of topic {shop.topic}" in refused.stderr
    among_others = headgate("feed", "create", shop.file("shop", source={"tables": ["public.orders"]}), "--dry-run")
    assert f"database {database}, table public.orders, which the sink has" in among_others.stderr
    known = headgate("feed", "create", shop.file("shop", sink={"not_the_source": True}), "--dry-run")
    assert known.exit_code == 0, known.stderr


def test_a_password_does_not_get_into_a_request(log: KafkaLog, shop: _Shop) -> None:
    file = shop.file("shop", sink={"dsn": shop.dsn + " password=s3cret"})
    result = headgate("feed", "create", file)
    assert result.exit_code == ExitCode.SINK_REFUSED
    assert "password_file" in result.stderr
    assert "s3cret" not in result.stderr


def test_the_topics_of_a_feed_are_listed_with_how_far_it_has_come(
    log: KafkaLog, owner: CoordinatorService, shop: _Shop
) -> None:
    unknown = headgate("topic", "list", "--feed", "shop")
    assert unknown.exit_code == ExitCode.NOT_FOUND, unknown.stderr
    shop.topic = shop.topic.replace("-src", "-kept")
    shop.make_topic(shop.topic, **{"retention.ms": "3600000", "cleanup.policy": "delete"})
    created = headgate("feed", "create", shop.file("shop"))
    assert created.exit_code == 0, created.stderr
    with Producer({"bootstrap.servers": log.connection.bootstrap_servers}) as producer:
        for _ in range(3):
            producer.produce(shop.topic, value=b"{}", partition=1)
        assert producer.flush(ANSWER_SECONDS) == 0

    listed = headgate("topic", "list", "--feed", "shop", "-o", "json")
    assert listed.exit_code == 0, listed.stderr
    rows = json.loads(listed.stdout)
    assert [(row["topic"], row["partition"], row["table"]) for row in rows] == [
        (shop.topic, 0, "public.orders"),
        (shop.topic, 1, "public.orders"),
    ]
    assert [(row["first"], row["end"], row["position"], row["lag"]) for row in rows] == [(0, 0, 0, 0), (0, 3, 0, 3)]
    assert {(row["retention_ms"], row["cleanup_policy"]) for row in rows} == {(3_600_000, "delete")}

    delete_topics(log.connection.admin, shop.topic)
    missing = headgate("topic", "list", "--feed", "shop", "-o", "json")
    assert missing.exit_code == ExitCode.SOURCE, missing.stderr
    assert shop.topic in json.loads(missing.stderr)["error"]["message"]
