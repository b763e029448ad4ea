"""What a producer that was fenced reports, however often: its poller gets it as an exception, too."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.eventlog.log import CommitUncertainError, FencedError
from headgate.eventlog.writers import KafkaTransactionalWriter
from headgate.sinks.kafka.target import TargetProducer

FENCED = KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))


class Fenced:
    """A producer whose commit fails if it ``refuses``; ``poll`` raises the fatal error in any case."""

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses
        self.polled = 0

    def begin_transaction(self) -> None:
        pass

    def produce(self, *_: object, **__: object) -> None:
        pass

    def commit_transaction(self, _seconds: float) -> None:
        if self._refuses:
            raise FENCED

    def poll(self, _seconds: float) -> int:
        self.polled += 1
        raise FENCED


def connection(producer: Fenced) -> Any:
    return SimpleNamespace(client=lambda *_, **__: producer, bootstrap_servers="b:1")


def test_a_sink_s_producer_that_was_fenced_is_fenced() -> None:
    fenced = Fenced(refuses=True)
    producer = TargetProducer(connection(fenced), "id", "progress")
    with pytest.raises(FencedError):
        producer.commit("t", (), [(0, b"k", b"v")])  # type: ignore[list-item]
    assert fenced.polled == 1


def test_a_commit_whose_offsets_are_lost_is_uncertain() -> None:
    fenced = Fenced(refuses=False)
    writer = KafkaTransactionalWriter(connection(fenced), "c", None, lambda _: None, "owner")  # type: ignore[arg-type]
    with pytest.raises(CommitUncertainError, match="1 were not reported"):
        writer._offsets({}, 1)
    assert fenced.polled == 1
