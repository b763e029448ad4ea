"""``headgate topic delete`` on a real broker: everything that still needs the control topics is named first."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Partition, Placed
from headgate.eventlog.topics import CONTROL_TOPICS
from headgate.records.base import Fact
from headgate.records.generation import SetKey, SetRecorded
from headgate.records.keys import FeedKey
from headgate.records.migration import MigrationKey, MigrationState
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate
from support import build
from support.kafka_cluster import Cluster, Foreigner
from support.migration_records import recorded
from support.waiting import eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]


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
    refused = headgate("topic", "delete", "--yes")
    assert refused.exit_code == ExitCode.REQUEST_REFUSED
    for said in ("feeds shop: ", "change logs orders: ", "schema changes m1: "):
        assert said in refused.stderr
    assert "gone" not in refused.stderr
    assert "m2" not in refused.stderr
    assert len(present(settings)) == len(CONTROL_TOPICS)


def test_a_cluster_is_deleted_once_its_services_have_ended(settings: Settings, log: KafkaLog, serve: Serve) -> None:
    service = serve("coordinator", "coordinator")
    eventually(lambda: service.get("/readyz")[0] == 200, "it serves")
    served = headgate("topic", "delete", "--yes")
    assert served.exit_code == ExitCode.REQUEST_REFUSED, served.stderr
    assert "a service of this cluster is running: " in served.stderr
    service.process.terminate()
    service.process.wait(ANSWER_SECONDS)

    asked = headgate("topic", "delete")
    assert (asked.exit_code, "Nothing was changed" in asked.stderr) == (ExitCode.NOT_CONFIRMED, True)
    group, other = f"{settings.cluster}.ingest.orders.i", f"other-{settings.cluster}.ingest.orders.i"
    for name in (group, other):
        leave_group(settings, name)
    dry = headgate("topic", "delete", "--dry-run", "-o", "json")
    assert json.loads(dry.stdout)["groups"] == own_groups(settings) == [group]
    assert len(json.loads(dry.stdout)["topics"]) == len(CONTROL_TOPICS)
    assert len(present(settings)) == len(CONTROL_TOPICS)

    with member_of(settings, group):
        deleted = headgate("topic", "delete", "--yes", "-o", "json")
    assert deleted.exit_code == ExitCode.REQUEST_FAILED, deleted.stderr
    assert "1 consumer group is left" in deleted.stderr
    assert (group in deleted.stderr, json.loads(deleted.stdout)["groups"]) == (True, [])
    assert (present(settings), own_groups(settings)) == (set(), [group])

    assert headgate("topic", "create").exit_code == 0
    eventually(lambda: not has_members(settings, group), "the member has left")
    deleted = headgate("topic", "delete", "--yes")
    assert deleted.exit_code == 0, deleted.stderr
    assert "DROP SCHEMA headgate CASCADE" in " ".join(deleted.stderr.split())
    assert present(settings) == set()
    assert own_groups(settings) == []
    assert headgate("feed", "list").exit_code == ExitCode.TOPICS_MISSING
    assert headgate("topic", "delete", "--yes").exit_code == ExitCode.TOPICS_MISSING
    assert headgate("topic", "create").exit_code == 0
