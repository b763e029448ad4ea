"""Which of librdkafka's errors mean that a producer is over, and what nobody says."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.eventlog import writers
from headgate.eventlog.codec import Codec
from headgate.eventlog.connection import KafkaConnection, is_fenced
from headgate.eventlog.log import CommitRefusedError, LogError, Partition, Placed, SchemaLevel
from headgate.eventlog.proofs import Proofs
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.writers import KafkaTransactionalWriter
from headgate.records.base import Fact
from headgate.records.keys import SessionKey


@pytest.mark.parametrize(
    ("code", "fatal"),
    [
        (KafkaError._FENCED, True),
        (KafkaError._FATAL, False),  # what produce() says after a take-over: fatal() alone is not enough
        (KafkaError.INVALID_PRODUCER_EPOCH, False),
        (KafkaError.PRODUCER_FENCED, False),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
    ],
)
def test_these_end_a_producer(code: int, fatal: bool) -> None:
    assert is_fenced(KafkaException(KafkaError(code, "said by the broker", fatal=fatal)))


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._STATE, KafkaError.MSG_SIZE_TOO_LARGE])
def test_these_do_not(code: int) -> None:
    assert not is_fenced(KafkaException(KafkaError(code, "said by the client")))


def test_nothing_is_ended_where_nobody_says_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise LogError("reading __transaction_state: TOPIC_AUTHORIZATION_FAILED")

    monkeypatch.setattr(writers, "decisions_of", refused)
    log_writer = KafkaTransactionalWriter(KafkaConnection("127.0.0.1:1"), "c", None, lambda _: None, "owner")  # type: ignore[arg-type]
    assert not log_writer.end_hanging([Placed(Partition("dispatch", 0), Fact(SessionKey("-", "-"), None))])


def test_no_transaction_begins_behind_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its abort, by any process, would undo the lost one, which was confirmed."""
    at = Partition("c.dispatch", 0)
    monkeypatch.setattr(Proofs, "lost", lambda _, partitions: {at} & set(partitions))
    log_writer = KafkaTransactionalWriter(
        KafkaConnection("127.0.0.1:1"), "c", Codec(schemas(), SchemaLevel(1)), lambda _: None, "owner"
    )
    placed = [Placed(Partition("dispatch", 0), Fact(SessionKey("-", "-"), None))]
    with pytest.raises(CommitRefusedError, match=r"lost the end of the last one in c\.dispatch/0"):
        log_writer.commit(placed)
    with pytest.raises(CommitRefusedError, match="This writer is over"):
        log_writer.commit(placed)
