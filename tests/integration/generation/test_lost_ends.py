"""A broker that has lost the end of a change log's writer's transaction: its next incarnation ends it as decided."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import NewTopic

from headgate.eventlog.decisions import decisions_of
from headgate.eventlog.hanging import hidden_of
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import CommitUncertainError, FencedError, Partition
from headgate.eventlog.topics import create_topics
from headgate.generation.changelog.core.outbox import Written
from headgate.generation.changelog.shell.producer import (
    Outgoing,
    WriterProducer,
    ended_lost_changes,
    read_written,
    transactional_id,
)
from headgate.generation.changelog.shell.wire import (
    POSITIONS_PARTITIONS,
    change_headers,
    encode_written,
    positions_partition,
    positions_topic,
)
from headgate_lab.embedded.broker import EmbeddedKafka
from integration.sinks.kafka_bench import records_of
from support.kafka_cluster import Cluster
from support.lost_ends import PATIENT, lose_markers
from support.topic_changes import make_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

NAME, WRITER = "orders", "w"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One of our own, since it is killed and its files are changed."""
    with EmbeddedKafka(tmp_path_factory.mktemp("lost") / "kafka", settings=PATIENT) as kafka:
        yield kafka


@pytest.fixture
def log(broker: EmbeddedKafka) -> Iterator[KafkaLog]:
    cluster = Cluster(broker.bootstrap, "lost")
    create_topics(cluster)
    with closing(open_log(cluster)) as log:
        yield log


def next_life(log: KafkaLog) -> WriterProducer:
    producer = WriterProducer(log.connection, log.cluster, NAME, WRITER)
    producer.init()
    return producer


def write(producer: WriterProducer, topic: str, position: int) -> None:
    headers = change_headers(WRITER, position)
    changes = [Outgoing(topic, number, b"k", b"%d" % position, headers) for number in range(2)]
    at = positions_partition(WRITER)
    written = encode_written(Written(position, position))
    producer.commit([*changes, Outgoing(positions_topic(topic), at, WRITER.encode(), written)])


def test_its_position_and_its_changes_are_readable_again(broker: EmbeddedKafka, log: KafkaLog) -> None:
    topic = f"{log.cluster}.data"
    make_topics(log.connection.admin, NewTopic(topic, 2, 1), NewTopic(positions_topic(topic), POSITIONS_PARTITIONS, 1))
    where = log.connection, log.cluster, NAME, topic, WRITER
    with closing(next_life(log)) as first:
        write(first, topic, 1)
        write(first, topic, 2)
        own_id = transactional_id(log.cluster, NAME, WRITER)
        eventually(lambda: decisions_of(log.connection, own_id).is_over, "the broker is done with it")
        lost = [Partition(topic, 1), Partition(positions_topic(topic), positions_partition(WRITER))]
        lose_markers(broker, lost)
        eventually(lambda: set(hidden_of(log.connection, lost)) == set(lost), "readers are held up")
        # Were the next one aborted, the confirmed one would be gone where its markers are missing.
        with pytest.raises(CommitUncertainError, match="that cannot be read"):
            write(first, topic, 3)
    with closing(next_life(log)) as second:
        assert ended_lost_changes(*where)
        assert not ended_lost_changes(*where)
        with pytest.raises(FencedError):
            write(second, topic, 3)
    with closing(next_life(log)) as third:
        assert read_written(*where) == Written(2, 2)
        write(third, topic, 3)
    eventually(lambda: not hidden_of(log.connection, lost), "all can be read")
    assert records_of(broker.bootstrap, topic) == [(p, b"k", b"%d" % n) for p in range(2) for n in (1, 2, 3)]
