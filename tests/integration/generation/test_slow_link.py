"""A ChangeWriter whose link to Kafka carries some 300 KB a second: what it writes gets there, in smaller batches."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics
from headgate.generation import ChangeReader, ChangeWriter, open_generation_log
from headgate_lab.chaos.proxy import Link, Proxies
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.ports import HOST, free_ports
from support.generation_owner import running_owner
from support.kafka_cluster import Cluster

from .test_change_log import SET, Operator, read_all

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def slow_link(tmp_path: Path, logs_apart: None) -> Iterator[tuple[KafkaLog, KafkaLog, Callable[[Link], None]]]:
    """The log, the same log through a proxy, and how to change the proxy's link."""
    (port,) = free_ports(1)
    with closing(Proxies()) as proxies:
        proxy = proxies.open(port)
        kafka = EmbeddedKafka(tmp_path / "kafka", settings=CALM, further_listeners={"SLOW": (port, proxy.port)})
        kafka.start()
        cluster = Cluster(kafka.bootstrap, "slow")
        create_topics(cluster)
        with (
            closing(open_log(cluster)) as log,
            closing(open_generation_log(f"{HOST}:{proxy.port}", "slow")) as through,
            running_owner(log, cluster),
        ):
            yield log, through, partial(proxies.change, proxy)
        kafka.stop()


def test_large_changes_get_through_a_slow_link(
    slow_link: tuple[KafkaLog, KafkaLog, Callable[[Link], None]],
) -> None:
    log, through, change = slow_link
    Operator(log).create()
    with ChangeWriter(through, SET, "w") as writer:
        assert writer.position == -1
        change(Link.SLOW)
        for position in range(100):
            writer.write(b"k", os.urandom(60_000), position)
        writer.write(b"k", os.urandom(2_000_000), 100)
        assert writer.flush() == 100
        change(Link.OPEN)
    with closing(ChangeReader(log, SET, "r")) as reader:
        assert read_all(reader, 101) == {b"k": list(range(101))}
