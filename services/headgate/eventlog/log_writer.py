"""The parts that both log writers share: the producer, and the conversion of a fact into a message."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from headgate.eventlog.clock import BrokerClock, wall_ms
from headgate.eventlog.codec import Codec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.headers import Header, cloud_event, plain
from headgate.eventlog.log import LogError, Partition, Placed
from headgate.eventlog.producing import Delivered, hand_over
from headgate.eventlog.topics import CONTROL_TOPICS, MESSAGE_BYTES_MAX, clock_advice, topic_name

__all__ = ["Check", "LogWriter"]

ACK_POLL_SECONDS: Final = 0.1
"""An acknowledgement may be served to a thread that polls the same producer: poll again so often."""

MESSAGE_TIMEOUT_MS: Final = 8_000
"""After which librdkafka gives a record up. At most the transaction's timeout, or the broker would end it first."""

_TELL_TIME: Final = frozenset(topic.name for topic in CONTROL_TOPICS if topic.tells_time)

_log = logging.getLogger(__name__)

Check = Callable[[Sequence[Partition]], None]
"""Raises LogError for a partition that the log does not have."""


class LogWriter:
    """What both writers share: a producer, and how a placed fact becomes a message."""

    def __init__(
        self,
        connection: KafkaConnection,
        cluster: str,
        codec: Codec,
        check: Check,
        name: str,
        *,
        cloudevents: bool = False,
        clock: BrokerClock | None = None,
        **fixed: Any,
    ) -> None:
        """``clock`` learns the brokers' time from acknowledgements. ``fixed``: further properties of the producer."""
        self._connection = connection
        self._clock = clock
        self._cluster = cluster
        self._codec = codec
        self._check = check
        self._name = name
        self._cloudevents = cloudevents
        self._made: Callable[[], Producer] = partial(
            connection.client,
            Producer,
            client_id=name,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            message_max_bytes=MESSAGE_BYTES_MAX,
            message_timeout_ms=MESSAGE_TIMEOUT_MS,
            **fixed,
        )
        self._producer: Producer | None = self._made()

    def close(self) -> None:
        """Let go: what was not acknowledged by now is not waited for.

        The producer is dropped, not closed: its own ``close`` would flush, would abort where the outcome is
        uncertain, and fails on a fenced instance (SystemError, confluent-kafka 2.16.0).
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _open(self) -> Producer:
        if self._producer is None:
            raise LogError(f"writer {self._name} is closed; make a new one")
        return self._producer

    def _encode(self, placed: Sequence[Placed]) -> list[tuple[bytes, bytes | None]]:
        """Keys and values. Raises ValueError for facts that do not belong where they are placed, or LogError."""
        self._check([each.partition for each in placed])
        for each in placed:
            if each.partition.topic != each.fact.key.topic:
                raise ValueError(
                    f"key {each.fact.key.text()} belongs to {each.fact.key.topic}, not to {each.partition.topic}"
                )
        return [self._codec.encode(each.fact) for each in placed]

    def _produce(self, placed: Placed, message: tuple[bytes, bytes | None], report: Delivered, deadline: float) -> None:
        """Hand one message to librdkafka. Raises KafkaException; BufferError if the queue stays full."""
        if self._clock is not None and placed.partition.topic in _TELL_TIME:
            report = partial(_report_time, self._clock, time.monotonic(), report)
        key, value = message
        hand_over(
            self._open(),
            deadline,
            topic_name(self._cluster, placed.partition.topic),
            partition=placed.partition.number,
            key=key,
            value=value,
            headers=self._headers(placed),
            on_delivery=report,
        )

    def _headers(self, placed: Placed) -> list[Header]:
        headers = plain(self._name, placed)
        if self._cloudevents:
            headers += cloud_event(self._name, self._cluster, placed, event=uuid4(), now_ms=wall_ms())
        return headers

    def _deliver(
        self, placed: Sequence[Placed], messages: Sequence[tuple[bytes, bytes | None]], deadline: float
    ) -> int:
        """Hand all over and wait until each has reached its partition; how many had not at the deadline.

        Raises KafkaException for the first that was refused; BufferError if the queue stays full.
        """
        producer = self._open()
        reports: list[KafkaError | None] = []
        for each, message in zip(placed, messages, strict=True):
            self._produce(each, message, partial(_note, reports), deadline)
        while len(reports) < len(placed) and (left := deadline - time.monotonic()) > 0:
            producer.poll(min(left, ACK_POLL_SECONDS))
        for report in reports:
            if report is not None:
                raise KafkaException(report)
        return len(placed) - len(reports)


def _report_time(
    clock: BrokerClock, sent_at: float, report: Callable[..., None], error: KafkaError | None, message: Message
) -> None:
    if error is None:
        kind, append_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            clock.acknowledged(sent_at, append_ms)
        elif clock.is_refused():
            _log.warning("%s", clock_advice(str(message.topic())))
    report(error, message)


def _note(reports: list[KafkaError | None], error: KafkaError | None, _: Message) -> None:
    reports.append(error)
