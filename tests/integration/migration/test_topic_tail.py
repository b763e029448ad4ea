"""The end of a table's topic at a real broker, as a cut-over asks for it."""

import uuid
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.eventlog.connection import KafkaConnection
from headgate.migration.shell.topic_tail import FeedsUnavailableError, Tail
from headgate.provisioning.time_scale import scaled_seconds
from support.topic_changes import add_partitions, delete_topics, make_topics

pytestmark = pytest.mark.integration


def test_partitions_are_those_that_the_topic_has_now(kafka_bootstrap: str) -> None:
    """Under the table's lock they are compared with those that marks were set in."""
    topic, seconds = f"tail-{uuid.uuid4().hex[:8]}", scaled_seconds(10)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    make_topics(admin, NewTopic(topic, 1, 1))
    connection = KafkaConnection(kafka_bootstrap)
    with closing(Tail(connection, topic, {0: 0}, None)) as tail:
        assert tail.partitions(seconds) == {0}
        add_partitions(admin, topic, 3)
        assert tail.partitions(seconds) == {0, 1, 2}
        delete_topics(admin, topic)
        with pytest.raises(FeedsUnavailableError, match=topic):
            tail.partitions(0.1)
    nobody = KafkaConnection("127.0.0.1:1")
    with closing(Tail(nobody, topic, {0: 0}, None)) as tail, pytest.raises(FeedsUnavailableError, match=topic):
        tail.partitions(0.1)
