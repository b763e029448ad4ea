"""Each service as a Kafka user of its own, with the rights that docs/configuration.md names and no others."""

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from prometheus_client import CollectorRegistry

from headgate.app.exit_codes import ExitCode
from headgate.app.process import SILENCE_SECONDS_MAX, Part
from headgate.config.settings import Settings, load_settings
from headgate.eventlog.connection import (
    GROUP_PASSING_CODES,
    BrokerUnreachableError,
    KafkaConnection,
    KafkaProperty,
)
from headgate.eventlog.decisions import Decision, decisions_of
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import FencedError, LogError, Partition, Placed
from headgate.generation.changelog.shell.feeds import FeedChangeLogs
from headgate.generation.changelog.shell.producer import WriterProducer
from headgate.generation.changelog.shell.reader import ChangeReader
from headgate.generation.changelog.shell.writer import ChangeWriter
from headgate.generation.shell.tail import GenerationTail, open_generation_log
from headgate.observability.probes import Probes
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.base import Fact
from headgate.records.control import SpanPlan
from headgate.records.keys import FeedKey, FeedProgressKey
from headgate.views import service
from integration.cli.conftest import ANSWER_SECONDS, ROWS, Service, change, headgate
from integration.cli.guarded import CHANGE_LOG, COPIED_TOPIC, GuardedKafka, granted, needed, revoked
from support import build
from support.connections import described
from support.eventlog_contract import ended
from support.topic_changes import make_topics
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark]

CLUSTER = "headgate"

SOON = scaled_seconds(10.0)
"""For a connection to be refused: who asks is told why only when the time is over. Mostly it is refused at once."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    guarded = GuardedKafka(tmp_path_factory.mktemp("guarded"))
    with guarded.kafka:
        yield guarded


@pytest.fixture
def kafka_bootstrap(guarded: GuardedKafka) -> str:
    return guarded.kafka.bootstrap


@pytest.fixture
def kafka_prefix() -> str:
    return f"{CLUSTER}."


@pytest.fixture
def log(settings: Settings, guarded: GuardedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLog]:
    """What shop_file asks for, with topics that the operator has made."""
    granted(guarded.kafka, needed(f"{CLUSTER}-shop.src.orders"))
    become("operator", guarded, monkeypatch)
    created = headgate("topic", "create", "--shards", "1")  # or finds them
    assert created.exit_code == 0, created.stderr
    with closing(open_log(settings)) as log:
        yield log


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADGATE_KAFKA__")]:
        monkeypatch.delenv(name)


def become(user: str, guarded: GuardedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten(monkeypatch)
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", guarded.by_password)
    monkeypatch.setenv("HEADGATE_KAFKA__SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_USERNAME", user)
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_PASSWORD", f"secret of {user}")


def certified(guarded: GuardedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Become the agent, by certificate."""
    forgotten(monkeypatch)
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", guarded.by_certificate)
    monkeypatch.setenv("HEADGATE_KAFKA__SECURITY_PROTOCOL", "SSL")
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_CA_LOCATION", str(guarded.papers.ca))
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_CERTIFICATE_LOCATION", str(guarded.papers.chain))
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_KEY_LOCATION", str(guarded.papers.key))


def table() -> Any:
    (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
    return row


def test_whoever_is_not_let_in_is_told_why(
    guarded: GuardedKafka, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    become("stranger", guarded, monkeypatch)
    unseen = headgate("feed", "list")
    assert (unseen.exit_code, "the user's right to Describe" in unseen.stderr) == (ExitCode.TOPICS_MISSING, True)
    wrong = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "agent"}
    nobody = KafkaConnection(guarded.by_password, wrong | {"sasl.password": "a guess"})
    with pytest.raises(BrokerUnreachableError, match="Authentication failed") as refused:
        nobody.broker_cluster_id(SOON)
    assert "a guess" not in str(refused.value)
    with pytest.raises(BrokerUnreachableError, match="SSL_HANDSHAKE"):
        KafkaConnection(guarded.kafka.bootstrap, {"security.protocol": "SSL"}).broker_cluster_id(SOON)
    unknown = {"security.protocol": "SSL", "ssl.ca.location": str(guarded.papers.stranger_ca)}
    with pytest.raises(BrokerUnreachableError, match="certificate verify failed"):
        KafkaConnection(guarded.by_certificate, unknown).broker_cluster_id(SOON)


def test_doctor_names_a_right_that_is_missing_and_the_command_that_grants_it(
    guarded: GuardedKafka, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.cluster_id, "the topics are there"
    (rule,) = (
        rule
        for rule in needed(f"{CLUSTER}-shop.src.orders")
        if (rule.principal, rule.name, rule.operation)
        == ("User:agent", f"{CLUSTER}.announce", AclOperation.WRITE)
    )  # fmt: skip
    revoked(guarded.kafka, rule)
    become("agent", guarded, monkeypatch)
    found = eventually(missing_right, "the right is missing")
    assert found is not None
    assert f"Write on {CLUSTER}.announce" in found["says"]
    (line,) = found["fix"]
    forgotten(monkeypatch)
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", guarded.kafka.bootstrap)
    typed = headgate(*shlex.split(line.replace("User:NAME", "User:agent"))[1:])
    assert typed.exit_code == 0, typed.stderr
    become("agent", guarded, monkeypatch)
    eventually(lambda: missing_right() is None, "the right is granted")


def missing_right() -> dict[str, Any] | None:
    checks = json.loads(headgate("doctor", "-o", "json").stdout)["checks"]
    return next((each for each in checks if (each["check"], each["state"]) == ("Kafka rights", "wrong")), None)


def test_a_key_that_spark_cannot_read_is_refused(
    guarded: GuardedKafka, log: KafkaLog, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.cluster_id, "the topics are there"
    certified(guarded, monkeypatch)
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_KEY_LOCATION", str(guarded.papers.old_key))
    refused = serve("refused", "agent", "--name", "a1")
    assert refused.process.wait(ANSWER_SECONDS) == ExitCode.SETTING
    said = refused.log_file.read_text(encoding="utf-8")
    assert "openssl pkcs8" in said
    assert "Spark log level" not in said, "it is refused before Spark is started"


def test_what_a_lost_end_was_to_be_may_be_read_by_coordinators_only(guarded: GuardedKafka, log: KafkaLog) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1")])
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    users = [login | {"sasl.username": who, "sasl.password": f"secret of {who}"} for who in ("coordinator", "agent")]
    coordinator, agent = (KafkaConnection(guarded.by_password, user) for user in users)
    *_, found = decisions_of(coordinator, f"{CLUSTER}.owner").found
    assert found.decision is Decision.COMMIT
    with pytest.raises(LogError, match=r"__transaction_state.*AUTHORIZATION"):
        decisions_of(agent, f"{CLUSTER}.owner")


def test_a_writer_that_was_refused_writes_once_it_has_the_right(
    guarded: GuardedKafka, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.cluster_id, "the topics are there"
    topics = (ResourceType.TOPIC, f"{CLUSTER}.", ResourcePatternType.PREFIXED, "User:stranger", "*")
    *looking, write = (
        AclBinding(*topics, operation, AclPermissionType.ALLOW)
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE)
    )
    become("stranger", guarded, monkeypatch)
    granted(guarded.kafka, looking)
    with closing(open_log(load_settings({"shards": 1}))) as own, closing(own.writer("presence")) as writer:

        def written() -> bool:
            with suppress(LogError):
                writer.write([ended("s1")], SOON)
                return True
            return False

        for _ in range(2):  # the second is told by a producer that had to be made anew
            with pytest.raises(LogError, match=r"(?i)authorization.*Give this user the right"):
                writer.write([ended("s1")], ANSWER_SECONDS)
        granted(guarded.kafka, [write])
        eventually(written, "the same writer writes")
    for rule in (*looking, write):
        revoked(guarded.kafka, rule)


@pytest.fixture
def producer(settings: Settings) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
        yield producer


@pytest.mark.usefixtures("one_core_spark")
def test_the_documented_rights_suffice(
    guarded: GuardedKafka,
    *,
    producer: Producer,
    shop_file: Path,
    serve: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = yaml.safe_load(shop_file.read_text(encoding="utf-8"))
    shop_file.write_text(yaml.safe_dump(spec | {"on_bad_change": "quarantine"}), encoding="utf-8")
    (topic,) = spec["source"]["topics"]
    become("coordinator", guarded, monkeypatch)
    serve("coordinator", "coordinator")
    certified(guarded, monkeypatch)
    agent = serve("agent", "agent", "--name", "a1")
    become("operator", guarded, monkeypatch)
    eventually(lambda: agent.get("/readyz")[0] == 200, "the agent is ready", seconds=300)
    fed = headgate("feed", "create", str(shop_file))
    assert fed.exit_code == 0, fed.stderr

    eventually(lambda: (table()["state"], table()["rows"]) == ("replicating", ROWS), "all rows are applied")
    # The lane is at rest now, and it is Spark's Java client that hears of the next row.
    key, value = change(ROWS + 1)
    producer.produce(topic, key=key, value=value)
    assert producer.flush(ANSWER_SECONDS) == 0
    eventually(lambda: table()["rows"] == ROWS + 1, "the row is applied")
    assert "KafkaException" not in agent.log_file.read_text(encoding="utf-8"), "it got in at once"
    (reading,) = [
        rule
        for rule in needed(topic)
        if rule.principal == "User:agent" and rule.name == topic and rule.operation is AclOperation.READ
    ]
    revoked(guarded.kafka, reading)
    key, value = change(1 << 40)  # no id of the sink's; who it is can be read, so it may be sent again
    producer.produce(topic, key=key, value=value)
    assert producer.flush(ANSWER_SECONDS) == 0
    why = eventually(lambda: table()["error"], "the table says what is wrong")
    assert f"topic {topic}, partition 0 from offset {ROWS + 1} on" in why
    assert f"Not authorized to access topics: [{topic}]" in why
    granted(guarded.kafka, [reading])
    (set_aside,) = eventually(
        lambda: json.loads(headgate("deadletter", "list", "shop", "-o", "json").stdout), "nothing is lost"
    )
    sent = headgate("deadletter", "replay", "shop", set_aside["place"], "--yes")
    assert sent.exit_code == 0, sent.stderr
    assert guarded.papers.key.read_text(encoding="ascii").splitlines()[1] not in agent.log_file.read_text(
        encoding="utf-8"
    )


def test_a_feed_is_explained_without_a_right_to_read_migrations(
    guarded: GuardedKafka, log: KafkaLog, *, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, key, feeds = f"{CLUSTER}.migration", FeedKey("held"), Partition("changefeed", 0)
    producer.produce(topic, key=b"?", value=b"?")  # of an empty topic nothing is read
    assert producer.flush(ANSWER_SECONDS) == 0
    # The feed of shop_file is another test's on this broker.
    plan = SpanPlan("public.items", f"{CLUSTER}-held.public.items", "public.items", {0: 0})
    source = {"topics": [plan.topic], "format": "debezium-json"}
    spec = {"feed": key.feed, "source": source, "sink": {"type": "postgresql", "dsn": "host=localhost"}}
    with closing(log.writer("test")) as writer:
        writer.write([Placed(feeds, Fact(key, build.feed_recorded(spec=json.dumps(spec), spans=(plan,))))], 30)
    become("operator", guarded, monkeypatch)
    given = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:operator", "*", AclOperation.READ)
    denied = AclBinding(*given, AclPermissionType.DENY)
    granted(guarded.kafka, [denied])
    try:
        said = eventually(explained_without_migrations, "the broker refuses the topic")
        assert topic in said
        assert headgate("why", "m1").exit_code not in (0, ExitCode.HELD, ExitCode.NOT_FOUND)
    finally:
        revoked(guarded.kafka, denied)
        with closing(log.writer("test")) as writer:
            writer.write([Placed(feeds, Fact(key, None))], 30)
    eventually(lambda: headgate("why", "m1").exit_code == ExitCode.NOT_FOUND, "the right is back")


def explained_without_migrations() -> str:
    """What is said of migrations; nothing if they are known."""
    told = headgate("why", "held", "-o", "json")
    assert told.exit_code == ExitCode.HELD, told.stderr
    return str(json.loads(told.stdout)["migrations_unknown"])


def test_the_documented_rights_suffice_for_the_views(
    guarded: GuardedKafka, log: KafkaLog, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1")])
    # Not the topic of shop_file, which other tests on this broker make.
    topic, key, at = f"{CLUSTER}-seen.src.orders", FeedKey("seen"), FeedProgressKey("seen")
    granted(guarded.kafka, needed(topic))
    feed = build.feed_of(topic, "a", partitions=1)
    feeds, checkpoints = Partition("changefeed", 0), Partition("checkpoint", 0)
    progress = build.feed_progressed(feed_id=feed.feed_id, incarnation=feed.incarnation, positions={"a": {0: 7}})
    make_topics(log.connection.admin, NewTopic(topic, 1, 1))
    with closing(log.writer("test")) as writer:
        writer.write([Placed(feeds, Fact(key, feed)), Placed(checkpoints, Fact(at, progress))], 30)
    become("views", guarded, monkeypatch)
    monkeypatch.setenv("HEADGATE_VIEWS__PORT", "0")
    views = serve("views", "views")
    eventually(lambda: views.said("rebuilt"), "the views have read all")
    group = ConsumerGroupTopicPartitions(f"{CLUSTER}.feed.seen")

    def shown() -> list[int] | None:
        """None while no broker answers for the group."""
        asked = log.connection.admin.list_consumer_group_offsets([group])[group.group_id]
        try:
            return [place.offset for place in asked.result(ANSWER_SECONDS).topic_partitions]
        except KafkaException as error:
            if error.args[0].code() not in GROUP_PASSING_CODES:
                raise
            return None

    eventually(lambda: shown() == [7], "the feed's positions are a group")
    with closing(log.writer("test")) as writer:
        writer.write([Placed(checkpoints, Fact(at, None)), Placed(feeds, Fact(key, None))], 30)
    eventually(lambda: shown() == [], "and no more when it is gone")
    views.process.terminate()
    assert views.process.wait(ANSWER_SECONDS) == ExitCode.DONE
    assert "uthoriz" not in views.log_file.read_text(encoding="utf-8")


def test_the_documented_rights_suffice_for_migrations(
    guarded: GuardedKafka,
    log: KafkaLog,
    postgres_database: str,
    *,
    serve: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert log.cluster_id, "the topics are there"
    parts = urlsplit(postgres_database)
    (tmp_path / "password").write_text(unquote(parts.password or ""), encoding="utf-8")
    address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("CREATE TABLE items (id int PRIMARY KEY); INSERT INTO items VALUES (1)")
        become("migration", guarded, monkeypatch)
        owner = serve("migration", "migration")
        become("operator", guarded, monkeypatch)
        asked = headgate(
            *("migration", "submit", "ALTER TABLE items ADD COLUMN extra int DEFAULT 7", "--id", "m"),
            *("--database", described(address, tmp_path / "password", approval="required"), "--timeout", "120"),
            *("--strategy", "direct", "--yes"),
        )
        assert asked.exit_code == 0, asked.output
        approve = ("migration", "approve", "m", "--timeout", "60", "--yes")
        monkeypatch.setenv("LOGNAME", "another")
        assert "uthoriz" in headgate(*approve).output, "whoever may submit may not approve"
        become("approver", guarded, monkeypatch)
        assert headgate(*approve).exit_code == 0
        eventually(
            lambda: json.loads(headgate("migration", "show", "m", "-o", "json").stdout)["state"] == "complete",
            "the change is in force",
        )
        assert database.execute("SELECT id, extra FROM items").fetchall() == [(1, 7)]
    owner.process.terminate()
    assert owner.process.wait(ANSWER_SECONDS) == ExitCode.DONE
    assert "uthoriz" not in owner.log_file.read_text(encoding="utf-8")


def test_the_documented_rights_suffice_for_change_logs(
    guarded: GuardedKafka, log: KafkaLog, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.cluster_id, "the topics are there"
    become("generation", guarded, monkeypatch)
    owner = serve("generation", "generation")
    become("operator", guarded, monkeypatch)
    created = headgate("generation", "create", CHANGE_LOG, "--partitions", "4", "--timeout", "120")
    assert created.exit_code == 0, created.output
    with (
        closing(ChangeWriter.open(CHANGE_LOG, "w", bootstrap=guarded.by_password, kafka=_as("writer"))) as writer,
        closing(open_generation_log(guarded.by_password, CLUSTER, _as("reader"))) as reading,
        closing(ChangeReader(reading, CHANGE_LOG, "r")) as reader,
    ):
        for position in range(10):
            writer.write(f"{position}".encode(), b"x", position)
        writer.flush()
        switched = headgate("generation", "resize", CHANGE_LOG, "--streams", "2", "--timeout", "120")
        assert switched.exit_code == 0, switched.output
        for position in range(10, 20):
            writer.write(f"{position}".encode(), b"x", position)
        writer.flush()
        read: list[int] = []
        eventually(
            lambda: len(read.extend(change.position for change in reader.poll(0.2)) or read) >= 20, "all is read"
        )
        assert sorted(read) == list(range(20))
    with (
        closing(open_generation_log(guarded.by_password, CLUSTER, _as("coordinator"))) as coordinators,
        closing(open_generation_log(guarded.by_password, CLUSTER, _as("agent"))) as agents,
        closing(GenerationTail(agents, CHANGE_LOG, "agent")) as tail,
    ):
        FeedChangeLogs(coordinators).report(CHANGE_LOG, "feed.shop", {})
        tail.read_to_end()
        assert "feed.shop" in tail.state.readers[CHANGE_LOG]
    _copied(guarded, log, serve, monkeypatch)
    owner.process.terminate()
    assert owner.process.wait(scaled_seconds(60)) == ExitCode.DONE
    assert "uthoriz" not in owner.log_file.read_text(encoding="utf-8")


def _copied(
    guarded: GuardedKafka, log: KafkaLog, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into the change log, by the service; and without the right to its group it ends and says so."""
    make_topics(log.connection.admin, NewTopic(COPIED_TOPIC, 2, 1))
    with Producer({"bootstrap.servers": guarded.kafka.bootstrap}) as producer:
        for number in range(10):
            producer.produce(COPIED_TOPIC, key=f"copied-{number}", value=b"x")
        assert producer.flush(ANSWER_SECONDS) == 0
    become("ingest", guarded, monkeypatch)
    ingest = serve("ingest", "ingest", CHANGE_LOG, "--topic", COPIED_TOPIC)
    with (
        closing(open_generation_log(guarded.by_password, CLUSTER, _as("reader"))) as reading,
        closing(ChangeReader(reading, CHANGE_LOG, "copied")) as reader,
    ):
        copied: set[bytes | None] = set()

        def is_copied() -> bool:
            copied.update(change.key for change in reader.poll(0.2))
            return sum(key is not None and key.startswith(b"copied-") for key in copied) == 10

        eventually(is_copied, "all is copied")
    ingest.process.terminate()
    assert ingest.process.wait(scaled_seconds(60)) == ExitCode.DONE
    assert "uthoriz" not in ingest.log_file.read_text(encoding="utf-8")
    (joining,) = _of_groups("ingest.")
    revoked(guarded.kafka, joining)
    try:
        without = serve("ingest-without", "ingest", CHANGE_LOG, "--topic", COPIED_TOPIC)
        assert without.process.wait(scaled_seconds(60)) == ExitCode.LOG
        assert "sharing the topics in a group" in without.log_file.read_text(encoding="utf-8")
    finally:
        granted(guarded.kafka, [joining])


def test_who_may_write_nothing_is_told_so_and_not_that_nobody_answers(
    guarded: GuardedKafka, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.cluster_id, "the topics are there"
    become("views", guarded, monkeypatch)
    given = load_settings({"shards": log.shards})
    with closing(open_log(given)) as of_views, closing(of_views.writer("views")) as writer:

        def is_told() -> bool:
            try:
                writer.write([ended("s1")], 0.2)  # before the broker has said why
            except LogError as error:
                return "authorization failed" in str(error) and "Give this user the right" in str(error)
            return False

        eventually(is_told, "the reason is the right that is missing")


def test_a_writer_without_its_transactional_id_says_so_and_not_that_it_was_replaced(
    guarded: GuardedKafka, log: KafkaLog
) -> None:
    assert log.cluster_id, "the topics are there"
    with closing(KafkaConnection(guarded.by_password, _as("reader"))) as connection:
        producer = WriterProducer(connection, CLUSTER, CHANGE_LOG, "w")
        with pytest.raises(LogError, match=r"taking transactional.id.*Give this user the right") as refused:
            producer.init()
        assert not isinstance(refused.value, FencedError)


def _as(user: str) -> dict[str, KafkaProperty]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"secret of {user}",
    }


def test_a_coordinator_without_its_transactional_id_says_so_once_and_serves_when_it_has_the_right(
    guarded: GuardedKafka, log: KafkaLog, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.cluster_id, "the topics are there"
    become("coordinator", guarded, monkeypatch)
    rules = [rule for rule in needed("x") if rule.restype is ResourceType.TRANSACTIONAL_ID]
    assert rules
    try:
        for rule in rules:
            revoked(guarded.kafka, rule)
        owner = serve("without", "coordinator")
        eventually(lambda: "uthoriz" in owner.get("/readyz")[1], "it says why it is not ready")
        eventually(lambda: len(_roles(owner)) > 6, "it has tried several times")
    finally:
        granted(guarded.kafka, rules)
    eventually(lambda: owner.get("/readyz")[0] == 200, "it serves")
    told = [line["last_error"] for line in _roles(owner) if "uthoriz" in line.get("last_error", "")]
    assert len(told) == 1, told
    assert f"taking transactional.id {CLUSTER}.{CLUSTER}.coordinator-0" in told[0]
    assert "Give this user the right (docs/configuration.md)" in told[0]
    assert "fenced" not in told[0]


def _roles(service: Service) -> list[dict[str, Any]]:
    return [line for line in service.lines() if line["event"] == "role"]


def _of_groups(prefix: str) -> list[AclBinding]:
    """The documented rights to groups whose names begin with the cluster's and this prefix."""
    rules = [rule for rule in needed("x") if rule.restype is ResourceType.GROUP]
    return [rule for rule in rules if rule.name == f"{CLUSTER}.{prefix}"]


def test_views_without_a_right_to_their_group_end_and_say_so(
    guarded: GuardedKafka, log: KafkaLog, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    become("views", guarded, monkeypatch)
    monkeypatch.setenv("HEADGATE_VIEWS__PORT", "0")
    groups = _of_groups("views.")
    (reading,) = [rule for rule in groups if rule.operation is AclOperation.READ]
    try:
        for name, without in (("reading", [reading]), ("all", groups)):
            for rule in without:
                revoked(guarded.kafka, rule)
            views = serve(f"without-{name}", "views")
            assert views.process.wait(scaled_seconds(60)) == ExitCode.LOG, name
            assert f"no right to Read groups whose names begin with {CLUSTER}.views." in views.log_file.read_text()
            granted(guarded.kafka, without)
    finally:
        granted(guarded.kafka, groups)


def test_views_that_cannot_join_their_group_can_still_be_stopped(
    guarded: GuardedKafka, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unasked(*_: object) -> None:
        """As if the right had been taken away just after it was asked for."""

    monkeypatch.setattr(service, "group_may_be_joined", unasked)
    (reading,) = [rule for rule in _of_groups("views.") if rule.operation is AclOperation.READ]
    revoked(guarded.kafka, reading)
    become("views", guarded, monkeypatch)
    monkeypatch.setenv("HEADGATE_VIEWS__PORT", "0")
    settings, probes = load_settings({"shards": 1}), Probes(SILENCE_SECONDS_MAX)
    try:
        with closing(open_log(settings)) as theirs:
            views = service.ViewsService(settings, theirs, probes=probes, registry=CollectorRegistry())
            part = Part("views", views.run, views.stop)
            part.start()
            eventually(lambda: probes.waiting() == ["views: joining the group"], "it says what it waits for")
            part.stop()
            assert part.ended(scaled_seconds(30)), "it waits no longer"
            assert part.error is None
    finally:
        granted(guarded.kafka, [reading])


def test_the_command_grants_what_it_shows(guarded: GuardedKafka) -> None:
    asked = headgate(
        *("topic", "grant", "agent", "--principal", "User:other-{who}", "--feed-topic", "shop."),
        *("--bootstrap", guarded.kafka.bootstrap, "--cluster", "granted", "-o", "json"),
    )
    assert asked.exit_code == 0, asked.output
    shown = {(row["name"], row["pattern"], row["operation"]) for row in json.loads(asked.stdout)}
    assert ("shop.", "prefixed", "Read") in shown
    everything = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, "User:other-agent", None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    admin = AdminClient({"bootstrap.servers": guarded.kafka.bootstrap})

    def given() -> set[tuple[str, str, str]]:
        found = admin.describe_acls(everything).result(scaled_seconds(60))
        return {
            (rule.name, rule.resource_pattern_type.name.lower(), rule.operation.name.title().replace("_", ""))
            for rule in found
        }

    eventually(lambda: given() == shown, lambda: f"the broker has the rules {shown}, and not {given()}")
    unknown = headgate("topic", "rights", "agnet")
    assert unknown.exit_code == ExitCode.NOT_FOUND
    assert "agent" in unknown.output
