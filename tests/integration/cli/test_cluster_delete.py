"""``headgate cluster delete`` on a real broker and real sinks: all that Headgate made goes, and nothing else."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import Result

from fixtures.services import mariadb_execute
from headgate.app.exit_codes import ExitCode
from headgate.app.sink_leftovers import LeftoverState, SinkPlace, remove_leftover
from headgate.config.settings import Settings
from headgate.databases.address import AddressOptions, Target
from headgate.databases.postgresql.progress import PostgresProgressTables
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Partition, Placed
from headgate.eventlog.topics import CONTROL_TOPICS
from headgate.records.base import Fact
from headgate.records.generation import SetKey, SetRecorded
from headgate.records.keys import FeedKey
from headgate.records.migration import MigrationKey, MigrationState
from headgate.sinks.contract import FeedIdentity
from headgate.sinks.kafka.progress import PARTITIONS, removed_key
from headgate.sinks.kafka.removal import opened_progress
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate, make_topics
from support import build
from support.kafka_cluster import Cluster, Foreigner
from support.migration_records import recorded
from support.waiting import eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]
Connections = Callable[..., None]


def present(settings: Settings) -> set[str]:
    topics = AdminClient({"bootstrap.servers": settings.bootstrap}).list_topics(timeout=ANSWER_SECONDS).topics
    return {name for name in topics if name.startswith(settings.prefix)}


def own_groups(settings: Settings) -> list[str]:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    found = admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result(ANSWER_SECONDS).valid
    return sorted(each.group_id for each in found if each.group_id.startswith(settings.prefix))


def leave_group(settings: Settings, name: str) -> None:
    """A group with a position, and without members."""
    consumer = Consumer({"bootstrap.servers": settings.bootstrap, "group.id": name})
    topic = f"{settings.prefix}announce"
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


@contextmanager
def member_of(settings: Settings, name: str) -> Iterator[None]:
    consumer = Consumer({"bootstrap.servers": settings.bootstrap, "group.id": name})
    consumer.subscribe([f"{settings.prefix}announce"])
    eventually(lambda: consumer.poll(0.1) is None and has_members(settings, name), "it has joined")
    yield
    consumer.close()


def has_members(settings: Settings, name: str) -> bool:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    future = admin.describe_consumer_groups([name], request_timeout=ANSWER_SECONDS)[name]
    return bool(future.result(ANSWER_SECONDS).members)


@pytest.fixture(autouse=True)
def connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Adds connections of this test alone. Those that other tests describe are no sinks of its cluster."""
    file = tmp_path / "connections.yaml"
    monkeypatch.setenv("HEADGATE_CONNECTIONS", str(file))
    file.write_text("connections: {}", encoding="utf-8")

    def add(**described: dict[str, Any]) -> None:
        known = yaml.safe_load(file.read_text(encoding="utf-8"))["connections"]
        file.write_text(yaml.safe_dump({"connections": known | described}), encoding="utf-8")

    return add


def postgres_at(url: str, folder: Path, password: str | None = None) -> dict[str, Any]:
    """A connection to that database, for sinks."""
    given = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
    file = folder / "password"
    file.write_text(str(given.pop("password", "") if password is None else password), encoding="utf-8")
    address = make_conninfo("", **given)
    return {"kind": "postgresql", "address": address, "use": ["sink"], "password_file": str(file)}


def mariadb_at(url: str, folder: Path) -> dict[str, Any]:
    parts = urlsplit(url)
    file = folder / "mariadb"
    file.write_text(parts.password or "", encoding="utf-8")
    address = f"mysql://{parts.username}@{parts.hostname}:{parts.port}/"
    return {"kind": "mysql", "address": address, "use": ["migration"], "password_file": str(file)}


def leave_at_postgres(url: str, cluster_id: str) -> None:
    """What a feed that was deleted leaves."""
    with psycopg.connect(url, autocommit=True) as connection:
        PostgresProgressTables(_Psycopg(connection)).create()
        connection.execute(
            "INSERT INTO headgate.removed (cluster_id, feed_id, feed) VALUES (%s, 'f1', 'shop')", (cluster_id,)
        )


def has_schema(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'headgate'").fetchone() is not None


class _Psycopg:
    """See databases.progress.Statements."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.transaction = connection.transaction

    def execute(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    def count(self, statement: str, parameters: Any = None) -> int:
        return self._connection.execute(statement, parameters).rowcount


def standings(result: Result) -> dict[str, str]:
    """Of each sink in the JSON output, by what there is."""
    return {each["what"]: each["standing"] for each in json.loads(result.stdout)["sinks"]}


def test_what_is_left_at_sinks_is_dropped(
    log: KafkaLog, connections: Connections, postgres_database: str, mariadb_database: str, tmp_path: Path
) -> None:
    leave_at_postgres(postgres_database, log.cluster_id)
    mariadb_execute(mariadb_database, "CREATE DATABASE headgate")
    mark = hashlib.sha256(log.cluster_id.encode()).hexdigest()[:16]
    mariadb_execute(mariadb_database, "CREATE TABLE headgate.migration_owner (id varchar(200) PRIMARY KEY)")
    mariadb_execute(mariadb_database, "INSERT INTO headgate.migration_owner VALUES (%s)", (f"m1@{mark}",))
    connections(warehouse=postgres_at(postgres_database, tmp_path), erp=mariadb_at(mariadb_database, tmp_path))

    dry = headgate("cluster", "delete", "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    shown = " ".join((dry.stdout + dry.stderr).split())
    for said in ("schema headgate", "connection warehouse", "database headgate", "connection erp", "curl -X DELETE"):
        assert said in shown
    dry = headgate("cluster", "delete", "--dry-run", "-o", "json")
    assert standings(dry) == {"schema headgate": "will be deleted", "database headgate": "will be deleted"}
    assert has_schema(postgres_database)

    deleted = headgate("cluster", "delete", "--yes", "-o", "json")
    assert (deleted.exit_code, deleted.stderr) == (0, "")
    assert standings(deleted) == {"schema headgate": "deleted", "database headgate": "deleted"}
    assert not has_schema(postgres_database)
    assert mariadb_execute(mariadb_database, "SHOW DATABASES LIKE 'headgate'") == []


def test_a_schema_that_others_use_stays(
    log: KafkaLog, connections: Connections, postgres_database: str, mariadb_database: str, tmp_path: Path
) -> None:
    """Another cluster of Headgate at one sink, and a table of the user's at the other."""
    leave_at_postgres(postgres_database, log.cluster_id)
    leave_at_postgres(postgres_database, "other/headgate.")
    mariadb_execute(mariadb_database, "CREATE DATABASE headgate")
    mariadb_execute(mariadb_database, "CREATE TABLE headgate.mine (id int)")
    connections(warehouse=postgres_at(postgres_database, tmp_path), erp=mariadb_at(mariadb_database, tmp_path))
    deleted = headgate("cluster", "delete", "--yes", "-o", "json")
    assert deleted.exit_code == 0, deleted.stderr
    assert standings(deleted) == {"schema headgate": "stays", "database headgate": "stays"}
    whys = [each["why"] for each in json.loads(deleted.stdout)["sinks"]]
    assert whys == [
        "it is used by cluster other/headgate.",
        "it is used by table or view that Headgate did not make: mine",
    ]
    assert has_schema(postgres_database)
    assert mariadb_execute(mariadb_database, "SELECT COUNT(*) FROM headgate.mine") == [(0,)]


def test_who_uses_a_schema_is_read_again_under_the_lock(
    log: KafkaLog, postgres_database: str, mariadb_database: str, tmp_path: Path
) -> None:
    """Another cluster may have come since the schema was listed as one that can go."""
    leave_at_postgres(postgres_database, "other/headgate.")
    mariadb_execute(mariadb_database, "CREATE DATABASE headgate")
    mariadb_execute(mariadb_database, "CREATE TABLE headgate.removed (cluster_id varchar(200) PRIMARY KEY)")
    mariadb_execute(mariadb_database, "INSERT INTO headgate.removed VALUES ('other/headgate.')")
    for described in (postgres_at(postgres_database, tmp_path), mariadb_at(mariadb_database, tmp_path)):
        target = Target(described["address"], Path(described["password_file"]))
        left = remove_leftover(SinkPlace(described["kind"], target, "connection"), log.cluster_id)
        assert (left.standing, left.why) == (LeftoverState.KEPT, "it is used by cluster other/headgate.")
    assert has_schema(postgres_database)
    assert mariadb_execute(mariadb_database, "SELECT COUNT(*) FROM headgate.removed") == [(1,)]


def test_a_schema_with_a_function_of_the_users_stays(
    log: KafkaLog, connections: Connections, postgres_database: str, tmp_path: Path
) -> None:
    """No list of kinds of objects is complete: PostgreSQL itself refuses to drop a schema that is not empty."""
    leave_at_postgres(postgres_database, log.cluster_id)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE FUNCTION headgate.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    connections(warehouse=postgres_at(postgres_database, tmp_path))
    deleted = headgate("cluster", "delete", "--yes", "-o", "json")
    assert (deleted.exit_code, standings(deleted)) == (0, {"schema headgate": "stays"}), deleted.stderr
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        assert connection.execute("SELECT headgate.mine(), count(*) FROM headgate.removed").fetchall() == [(1, 1)]


def test_a_sink_that_cannot_be_used_is_named_and_the_rest_is_deleted(
    settings: Settings, log: KafkaLog, connections: Connections, postgres_database: str, tmp_path: Path
) -> None:
    """A wrong password, a database that is away, and one that works."""
    leave_at_postgres(postgres_database, log.cluster_id)
    here = postgres_at(postgres_database, tmp_path)
    (folder := tmp_path / "wrong").mkdir()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN PASSWORD 'right'")
    given = conninfo_to_dict(here["address"])
    wrong = postgres_at(make_conninfo("", **given | {"user": "stranger", "port": 1}), folder, password="wrong")
    connections(away=wrong, warehouse=here)
    try:
        failed = headgate("cluster", "delete", "--yes", "-o", "json")
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute("DROP ROLE stranger")
    assert failed.exit_code == ExitCode.REQUEST_FAILED, failed.stderr
    shown = json.loads(failed.stdout)
    assert [each["standing"] for each in shown["sinks"]] == ["not deleted", "deleted"]
    (left,) = shown["left"]
    assert "connection away" in left
    assert "psql postgresql://stranger@" in left
    assert "DROP SCHEMA headgate CASCADE" in left
    assert (present(settings), has_schema(postgres_database)) == (set(), False)


def test_a_sink_is_given_by_its_address(
    log: KafkaLog, connections: Connections, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_at_postgres(postgres_database, log.cluster_id)
    given = postgres_at(postgres_database, tmp_path)
    monkeypatch.delenv("HEADGATE_CONNECTIONS")
    with_password = headgate("cluster", "delete", "--yes", "--sink", "postgresql://u:secret@127.0.0.1/shop")
    assert with_password.exit_code == ExitCode.SETTING
    assert "secret" not in with_password.stderr.replace("HEADGATE_SECRETS_DIR", "")
    typo = headgate("cluster", "delete", "--yes", "--sink", "postgersql://u@127.0.0.1/shop")
    assert (typo.exit_code, "Did you mean 'postgresql://" in typo.stderr) == (ExitCode.DATABASE, True)
    arguments = ("--sink", given["address"], "--sink-password-file", given["password_file"])
    deleted = headgate("cluster", "delete", "--yes", "-o", "json", *arguments)
    assert (deleted.exit_code, standings(deleted)) == (0, {"schema headgate": "deleted"}), deleted.stderr


def test_a_cluster_that_does_not_exist_is_not_guessed(settings: Settings, log: KafkaLog) -> None:
    typo = headgate("cluster", "delete", "--yes", "--cluster", f"{settings.cluster}x")
    assert typo.exit_code == ExitCode.TOPICS_MISSING
    assert f"Did you mean {settings.cluster!r}?" in typo.stderr
    assert len(present(settings)) == len(CONTROL_TOPICS)


def test_the_topic_of_positions_goes_with_the_last_cluster_that_uses_it(
    settings: Settings, log: KafkaLog, kafka_prefix: str
) -> None:
    """The topic of this test's own: that of all sinks is one to a cluster of Kafka, and other tests use it."""
    target = Target(f"kafka://{settings.bootstrap}", options=AddressOptions("--sink", "--sink-password-file", "sink"))
    name = f"{kafka_prefix}progress"
    with opened_progress(target, name) as topic:
        assert not topic.exists
        make_topics(log, NewTopic(name, PARTITIONS, 1))
        key = removed_key(FeedIdentity("other", "f1", "shop"))
        with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
            producer.produce(name, key=key, value=b'{"at_ms": 1}')
            assert producer.flush(ANSWER_SECONDS) == 0
        assert (topic.other_clusters(log.cluster_id), topic.other_clusters("other")) == (("other",), ())
        topic.delete()
        eventually(lambda: not topic.exists, "it is deleted")
        topic.delete()


def test_with_feeds_the_services_delete_them_and_the_rest_waits_until_they_are_stopped(
    settings: Settings, log: KafkaLog, serve: Serve, shop_file: Path
) -> None:
    service = serve("coordinator", "coordinator")
    assert headgate("feed", "create", str(shop_file)).exit_code == 0
    refused = headgate("cluster", "delete", "--yes")
    assert refused.exit_code == ExitCode.REQUEST_REFUSED
    assert "feeds shop: `headgate feed delete FEED`, or --with-feeds" in refused.stderr
    late = headgate("cluster", "delete", "--yes", "--with-feeds", "--timeout", "20")
    assert late.exit_code == ExitCode.REQUEST_TIMED_OUT, late.stderr
    assert "a service still runs" in late.stderr
    assert " --sink '" in late.stderr
    assert headgate("feed", "list", "-o", "json").stdout.strip() == "[]"
    service.process.terminate()
    service.process.wait(ANSWER_SECONDS)
    assert headgate("cluster", "delete", "--yes").exit_code == 0
    assert present(settings) == set()


def test_what_needs_the_topics_is_named_and_they_stay(settings: Settings, log: KafkaLog) -> None:
    change_log = SetRecorded(0, "orders", None, 4, 1, (), ())
    facts = [
        Placed(Partition("changefeed", 0), Fact(FeedKey("shop"), build.feed_recorded())),
        Placed(Partition("generation", 0), Fact(SetKey("orders"), change_log)),
        Placed(Partition("generation", 0), Fact(SetKey("gone"), SetRecorded(0, "", None, 4, 1, (), ()))),
        Placed(Partition("migration", 0), Fact(MigrationKey("m1"), recorded("{}"))),
        Placed(Partition("migration", 0), Fact(MigrationKey("m2"), recorded("{}", state=MigrationState.COMPLETE))),
    ]
    with closing(Foreigner(Cluster(settings.bootstrap, settings.cluster))) as foreigner:
        for fact in facts:
            foreigner.put_fact(fact)
        foreigner.flush()
    refused = headgate("cluster", "delete", "--yes")
    assert refused.exit_code == ExitCode.REQUEST_REFUSED
    for said in ("feeds shop: ", "change logs orders: ", "schema changes m1: "):
        assert said in refused.stderr
    assert "gone" not in refused.stderr
    assert "m2" not in refused.stderr
    assert len(present(settings)) == len(CONTROL_TOPICS)


def test_a_cluster_is_deleted_once_its_services_have_ended(settings: Settings, log: KafkaLog, serve: Serve) -> None:
    service = serve("coordinator", "coordinator")
    eventually(lambda: service.get("/readyz")[0] == 200, "it serves")
    served = headgate("cluster", "delete", "--yes")
    assert served.exit_code == ExitCode.REQUEST_REFUSED, served.stderr
    assert "a service of this cluster is running: " in served.stderr
    service.process.terminate()
    service.process.wait(ANSWER_SECONDS)

    asked = headgate("cluster", "delete")
    assert (asked.exit_code, "Nothing was changed" in asked.stderr) == (ExitCode.NOT_CONFIRMED, True)
    group, other = f"{settings.cluster}.ingest.orders.i", f"other-{settings.cluster}.ingest.orders.i"
    for name in (group, other):
        leave_group(settings, name)
    dry = headgate("cluster", "delete", "--dry-run", "-o", "json")
    assert json.loads(dry.stdout)["groups"] == own_groups(settings) == [group]
    assert len(json.loads(dry.stdout)["topics"]) == len(CONTROL_TOPICS)
    assert len(present(settings)) == len(CONTROL_TOPICS)

    with member_of(settings, group):
        deleted = headgate("cluster", "delete", "--yes", "-o", "json")
    assert deleted.exit_code == ExitCode.REQUEST_FAILED, deleted.stderr
    assert "1 part could not be deleted" in deleted.stderr
    assert f"kafka-consumer-groups --delete --group {group}" in deleted.stderr
    assert (group in deleted.stderr, json.loads(deleted.stdout)["groups"]) == (True, [])
    assert (present(settings), own_groups(settings)) == (set(), [group])

    assert headgate("topic", "create").exit_code == 0
    eventually(lambda: not has_members(settings, group), "the member has left")
    deleted = headgate("cluster", "delete", "--yes")
    assert deleted.exit_code == 0, deleted.stderr
    assert "DROP SCHEMA headgate CASCADE" in " ".join(deleted.stderr.split())
    assert present(settings) == set()
    assert own_groups(settings) == []
    assert headgate("feed", "list").exit_code == ExitCode.TOPICS_MISSING
    nothing = headgate("cluster", "delete", "--yes")
    assert (nothing.exit_code, "nothing to delete" in nothing.stderr) == (ExitCode.TOPICS_MISSING, True)
    assert headgate("topic", "create").exit_code == 0
