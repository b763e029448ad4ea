"""A client whose first lookup of an offset fails is stopped by librdkafka, and replaced by us, on a real broker."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import KafkaLog, KafkaReader, open_log
from headgate.eventlog.lasting_reader import OffsetGoneError, ReaderStoppedError
from headgate.eventlog.log import Delivery, LogError, LogReader, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.eventlog.topics import topic_name
from support.eventlog_contract import DISPATCH_0, ended
from support.failed_lookups import LookupProxy, lookups_of
from support.kafka_cluster import ANSWER_SECONDS, Cluster

pytestmark = pytest.mark.integration


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[LookupProxy]:
    with lookups_of(cluster.bootstrap) as made:
        yield made


@pytest.fixture
def distant(log: KafkaLog, cluster: Cluster, proxy: LookupProxy) -> Iterator[KafkaLog]:
    """The log through the proxy, with three records on it."""
    with closing(log.writer("test")) as writer:
        writer.write([ended(f"s{number}") for number in range(3)], ANSWER_SECONDS)
    opened = open_log(msgspec.structs.replace(cluster, bootstrap=proxy.bootstrap))
    yield opened
    opened.close()


def sessions(reader: LogReader, count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + ANSWER_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += [d.key.session for d in reader.poll(10, 0.1) if isinstance(d, Delivery)]  # type: ignore[attr-defined]
    return found


def stop_of(reader: Any) -> LogError:
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        try:
            reader.poll(10, 0.1)
        except LogError as error:
            return error
    pytest.fail("it was never told")


def test_the_client_stops_and_says_that_the_lookup_failed(distant: KafkaLog, proxy: LookupProxy) -> None:
    proxy.failing = True
    at = Partition(topic_name(distant.cluster, DISPATCH_0.topic), DISPATCH_0.number)
    reader = PartitionReader(KafkaConnection(proxy.bootstrap), {at: 0}, client_id="test", asks_beginning=True)
    with reader, closing(reader._open_client({at: 0})) as client:
        error = stop_of(client)
        assert isinstance(error, ReaderStoppedError)
        assert "looking up where to begin failed" in str(error)
        proxy.failing = False
        for _ in range(30):
            assert client.poll(10, 0.1) == [], "it never tries again: this is why it has to be replaced"


def test_a_reader_of_the_log_goes_on_and_is_not_ready_until_then(distant: KafkaLog, proxy: LookupProxy) -> None:
    proxy.failing = True
    with closing(distant.reader({DISPATCH_0: 0})) as reader:
        assert isinstance(reader, KafkaReader)
        deadline = time.monotonic() + ANSWER_SECONDS
        while reader.replacements < 2 and time.monotonic() < deadline:
            assert reader.poll(10, 0.1) == []
        assert reader.replacements >= 2, "each replacement meets the same, and is replaced in its turn"
        assert "looking up where to begin failed" in str(reader.stopped)
        proxy.failing = False
        assert sessions(reader, 3) == ["s0", "s1", "s2"]
        while reader.stopped is not None and time.monotonic() < deadline:
            assert reader.poll(10, 0.1) == []
        assert reader.stopped is None


def test_an_offset_that_is_not_in_the_log_is_gone_and_nobody_is_asked_again(
    distant: KafkaLog, proxy: LookupProxy
) -> None:
    proxy.failing = True
    with closing(distant.reader({DISPATCH_0: 1_000_000})) as reader:
        with pytest.raises(OffsetGoneError, match="not in the log"):
            sessions(reader, 1)
        assert reader.stopped is not None
    assert proxy.failed == 0, "the leader's own answer is enough"
