"""Records handed to librdkafka, whose queue is bounded: one that is full is waited for until a deadline."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

__all__ = ["Delivered", "hand_over"]

Delivered = Callable[[KafkaError | None, Message], None]
"""Called by ``poll``, ``flush`` and commits with what became of a record."""

QUEUE_FULL_POLL_SECONDS: Final = 0.05
"""Each poll ends as soon as a record has left the queue; this bounds it when no broker answers."""


def hand_over(
    producer: Producer,
    deadline: float,
    topic: str,
    *,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    on_delivery: Delivered,
    headers: Sequence[tuple[str, str | bytes | None]] = (),
) -> None:
    """Hand one record to librdkafka. ``deadline``: monotonic seconds.

    Raises KafkaException, and BufferError if the queue is still full at the deadline.
    """
    given = list(headers)
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=on_delivery, headers=given)
        except BufferError:
            if time.monotonic() >= deadline:
                raise
            producer.poll(QUEUE_FULL_POLL_SECONDS)
        else:
            return
