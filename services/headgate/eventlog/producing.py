"""Records handed to librdkafka, whose queue is bounded: one that is full is waited for until a deadline."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

__all__ = ["Delivered", "hand_over", "hand_over_all"]

Delivered = Callable[[KafkaError | None, Message], None]
"""Called by ``poll``, ``flush`` and commits with what became of a record."""

_NO_HEADERS: Final[Mapping[str, bytes]] = {}

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
            _make_room(producer, deadline)
        else:
            return


def hand_over_all(
    producer: Producer,
    deadline: float,
    topic: str,
    records: Iterable[tuple[int, bytes | None, bytes | None]],
    *,
    on_delivery: Delivered,
    all_headers: Collection[Mapping[str, bytes]] = (),
) -> None:
    """The same for many records, each with its partition, key and value, in less than half the time.

    ``all_headers``: of each record, none at all if records have none.
    """
    produce = producer.produce
    whole = zip(records, all_headers, strict=True) if all_headers else zip(records, repeat(_NO_HEADERS), strict=False)
    for (partition, key, value), headers in whole:
        while True:
            try:
                if headers:
                    produce(topic, value, key, partition, on_delivery, headers=headers)
                else:  # a call with named arguments takes twice as long
                    produce(topic, value, key, partition, on_delivery)
            except BufferError:
                _make_room(producer, deadline)
            else:
                break


def _make_room(producer: Producer, deadline: float) -> None:
    """Wait until the queue may have room again. Raises the BufferError that is being handled after the deadline."""
    if time.monotonic() >= deadline:
        raise  # noqa: PLE0704 - what is being handled
    producer.poll(QUEUE_FULL_POLL_SECONDS)
