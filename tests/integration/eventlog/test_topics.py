"""Control topics are created as the table says, and refused when they cannot hold our state."""

from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headgate.eventlog.kafka import open_log
from headgate.eventlog.log import LogError
from headgate.eventlog.topics import (
    CONTROL_TOPICS,
    NEXT_COMMAND,
    SET_BY,
    TopicMissingError,
    TopicNotCompactedError,
    TopicPartitionsError,
    TopicSettingError,
    check_topics,
    create_topics,
    topic_name,
)
from headgate.records.registry import KEY_FORMS
from support.eventlog_contract import heartbeat
from support.kafka_cluster import ANSWER_SECONDS, Cluster, set_topic
from support.topic_changes import add_partitions, delete_topics

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(kafka_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_bootstrap})


def test_every_topic_of_the_keys_is_created_as_its_row_says(cluster: Cluster, admin: AdminClient) -> None:
    created = create_topics(cluster)
    assert created == sorted(topic_name(cluster.cluster, topic) for topic in KEY_FORMS)
    metadata = admin.list_topics(timeout=ANSWER_SECONDS).topics
    for topic in CONTROL_TOPICS:
        name = topic_name(cluster.cluster, topic.name)
        assert len(metadata[name].partitions) == (cluster.shards if topic.sharded else 1)
        (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        found = {setting: entry.value for setting, entry in future.result(ANSWER_SECONDS).items()}
        assert {setting: found[setting] for setting in topic.settings(1)} == topic.settings(1)
    check_topics(cluster)
    assert open_log(cluster).shards == cluster.shards


def test_creating_again_changes_nothing_and_fills_in_what_is_missing(cluster: Cluster, admin: AdminClient) -> None:
    create_topics(cluster)
    assert create_topics(cluster) == []
    name = topic_name(cluster.cluster, "sync")
    delete_topics(admin, name)
    assert create_topics(cluster) == [name]


def test_a_missing_topic_is_named_with_what_to_do(cluster: Cluster) -> None:
    with pytest.raises(TopicMissingError) as missing:
        open_log(cluster)
    assert missing.value.code == "control-topic-missing"
    for topic in KEY_FORMS:
        assert topic_name(cluster.cluster, topic) in str(missing.value)
    assert cluster.bootstrap in str(missing.value)
    assert len(str(missing.value).splitlines()) == 1, "one problem of many topics is reported once"
    assert "headgate topic create" in str(missing.value)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_not_compacted_is_refused(cluster: Cluster, policy: str) -> None:
    create_topics(cluster)
    set_topic(cluster, "dispatch", cleanup_policy=policy)
    name = topic_name(cluster.cluster, "dispatch")
    found = rf"{name} has cleanup\.policy={policy}, wanted cleanup\.policy=compact.*--entity-name {name}"
    for refusing in (open_log, create_topics):
        with pytest.raises(TopicNotCompactedError, match=found) as refused:
            refusing(cluster)
        assert refused.value.code == "control-topic-not-compacted"


def test_another_number_of_shards_is_refused(cluster: Cluster) -> None:
    create_topics(cluster)
    other = Cluster(cluster.bootstrap, cluster.cluster, shards=cluster.shards + 1)
    for refusing in (open_log, create_topics):
        with pytest.raises(TopicPartitionsError, match="sync have 2 partitions, wanted 3 for 3 shards") as refused:
            refusing(other)
        assert refused.value.code == "control-topic-partitions"
        assert "announce" not in str(refused.value)
        sharded = [topic.name for topic in CONTROL_TOPICS if topic.sharded]
        (line,) = str(refused.value).splitlines()
        assert all(topic_name(cluster.cluster, name) in line for name in sharded), "every sharded topic is named"
        assert "This cluster has 2 shards: set HEADGATE_SHARDS (--shards) to 2, or do not set it" in line


def test_a_topic_that_grew_is_refused(cluster: Cluster, admin: AdminClient) -> None:
    create_topics(cluster)
    name = topic_name(cluster.cluster, "announce")
    add_partitions(admin, name, 2)
    with pytest.raises(TopicPartitionsError, match=f"{name} has 2 partitions, wanted 1"):
        open_log(cluster)
    with pytest.raises(TopicPartitionsError) as both:
        open_log(Cluster(cluster.bootstrap, cluster.cluster, shards=cluster.shards + 1))
    of_announce, of_sharded = sorted(str(both.value).splitlines(), key=lambda line: name not in line)
    assert "make a new cluster under another name" in of_announce, "no number of shards is right for it"
    assert "This cluster has 2 shards" in of_sharded
    add_partitions(admin, topic_name(cluster.cluster, "sync"), 4)
    with pytest.raises(TopicPartitionsError) as refused:
        open_log(cluster)
    grown = str(refused.value).splitlines()
    assert len(grown) == 2
    assert all("make a new cluster under another name" in line for line in grown)


def test_a_setting_that_is_wrong_at_several_topics_is_reported_once_with_a_command_for_each(cluster: Cluster) -> None:
    create_topics(cluster)
    names = [topic_name(cluster.cluster, topic) for topic in ("dispatch", "sync")]
    for topic in ("dispatch", "sync"):
        set_topic(cluster, topic, cleanup_policy="delete")
    with pytest.raises(TopicNotCompactedError) as refused:
        open_log(cluster)
    said = str(refused.value)
    assert said.count("acknowledged state could be lost") == 1
    assert f"control topics {', '.join(names)} have cleanup.policy=delete" in said
    commands = said.partition(SET_BY)[2].split(NEXT_COMMAND)
    assert all(f"--entity-name {name} --add-config" in line for name, line in zip(names, commands, strict=True))


@pytest.mark.parametrize(
    ("setting", "found", "wanted"),
    [("unclean.leader.election.enable", "true", "false"), ("max.message.bytes", "1000", "16777216")],
)
def test_a_setting_that_would_lose_or_refuse_records_is_refused(
    cluster: Cluster, setting: str, found: str, wanted: str
) -> None:
    create_topics(cluster)
    set_topic(cluster, "checkpoint", **{setting.replace(".", "_"): found})
    with pytest.raises(TopicSettingError, match=f"{setting}={found}, wanted {setting}={wanted}") as refused:
        open_log(cluster)
    assert refused.value.code == "control-topic-setting"


def test_a_topic_that_does_not_tell_the_time_is_altered(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """As versions that did not need it have created it."""
    create_topics(cluster)
    set_topic(cluster, "announce", message_timestamp_type="CreateTime")
    name = topic_name(cluster.cluster, "announce")
    with closing(open_log(cluster)) as log, closing(log.writer("a1")) as writer:
        for number in range(2):
            writer.write([heartbeat(number)], ANSWER_SECONDS)
        assert not log.clock.is_known
    (said,) = [record.message for record in caplog.records if "does not have the brokers' timestamps" in record.message]
    assert f"--entity-name {name} --add-config message.timestamp.type=LogAppendTime" in said
    assert create_topics(cluster) == []
    with closing(open_log(cluster)) as log, closing(log.writer("a1")) as writer:
        writer.write([heartbeat(3)], ANSWER_SECONDS)
        assert log.clock.is_known


def test_sizes_and_ages_may_be_tuned(cluster: Cluster) -> None:
    create_topics(cluster)
    set_topic(cluster, "sync", segment_ms="1000", min_cleanable_dirty_ratio="0.5")
    check_topics(cluster)


def test_more_copies_than_brokers_are_refused_with_what_the_cluster_can_hold(cluster: Cluster) -> None:
    wanted = Cluster(cluster.bootstrap, cluster.cluster, replication_factor=3)
    with pytest.raises(LogError) as refused:
        create_topics(wanted)
    said = str(refused.value)
    assert f"3 copies need as many brokers, and Kafka at {cluster.bootstrap} has 1 broker" in said
    assert "`headgate topic create --replication-factor 1` (or set HEADGATE_REPLICATION_FACTOR=1)" in said
    assert "KafkaError" not in said
    create_topics(Cluster(cluster.bootstrap, cluster.cluster, replication_factor=1))
