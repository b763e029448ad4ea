"""What errors of Kafka mean for a sink."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError

from headgate.databases.errors import DatabaseRefusedError
from headgate.eventlog.connection import (
    RIGHTS_CODES,
    AccessRefusedError,
    BrokerUnreachableError,
    PropertyRefusedError,
    code_of,
)
from headgate.eventlog.log import LogError
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError

__all__ = ["MISSING_CODES", "as_sink_errors", "lost_topic", "refusal_of"]

MISSING_CODES: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""A topic, or a partition, that does not exist."""


CREATION_CODES: Final = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)
"""A topic that brokers do not create as it is wanted."""


@contextmanager
def as_sink_errors(doing: str) -> Iterator[None]:
    """Raise a LogError, and what forbids a connection, as the SinkError that means the same.

    ``doing`` names what was done for whom.
    """
    try:
        yield
    except DatabaseRefusedError as error:
        raise SinkRefusedError(str(error)) from error
    except LogError as error:
        raise _sink_error(error, doing) from error


def _sink_error(error: LogError, doing: str) -> SinkError:
    text = f"{doing}: {error}"
    if isinstance(error, AccessRefusedError):
        return SinkRefusedError(text)
    if isinstance(error, BrokerUnreachableError):
        return SinkSilentError(text)
    if code_of(error) in CREATION_CODES:
        return SinkRefusedError(f"{text}. Correct sink.topic, or create the topic yourself")
    if isinstance(error, PropertyRefusedError) or code_of(error) in RIGHTS_CODES:
        return SinkRefusedError(text)
    return SinkUnavailableError(text)


def lost_topic(topic: str, bootstrap: str, feed: str, *, exists: bool) -> SinkRefusedError:
    """A target topic is not the one that Headgate has written to."""
    what = "was deleted and re-created" if exists else "does not exist"
    return SinkRefusedError(
        f"topic {topic} on Kafka at {bootstrap} {what}, and the records that Headgate has written to it are missing. "
        f"Restore it, or pause the feed and run `headgate feed resume {feed} --from earliest`, which writes all "
        "changes of the source topic again"
    )


def refusal_of(error: KafkaError, target: str, bootstrap: str) -> SinkRefusedError | None:
    """Why a target topic does not take records, if that is what a delivery's error shows."""
    where = f"topic {target} on Kafka at {bootstrap}"
    if error.code() in MISSING_CODES:
        return SinkRefusedError(
            f"{where} does not exist, or has fewer partitions than the source topic. Headgate has written to it and "
            "does not re-create it, because its records would be missing. Restore it, or pause the feed and run "
            "`headgate feed resume FEED --from earliest`"
        )
    if error.code() in RIGHTS_CODES:
        return SinkRefusedError(f"{where}: {error.str()}. Give this user the right (docs/howto/kafka-sink.md, Rights)")
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return SinkRefusedError(
            f"{where} refuses a record as too large, which its max.message.bytes allowed when the batch was read. Was "
            "it lowered? The batch is retried with the new value"
        )
    return None
