"""Which of librdkafka's errors mean that this producer is over (what it was seen to say: kafka-facts §3)."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.eventlog.writers import _is_fenced


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
    assert _is_fenced(KafkaException(KafkaError(code, "said by the broker", fatal=fatal)))


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._STATE, KafkaError.MSG_SIZE_TOO_LARGE])
def test_these_do_not(code: int) -> None:
    assert not _is_fenced(KafkaException(KafkaError(code, "said by the client")))
