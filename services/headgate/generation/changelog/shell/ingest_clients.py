"""The two clients of ``headgate serve ingest``: a member of its group, and a reader; and what their errors mean.

The member shares partitions with other processes and reads nothing; the reader gets its start positions from the
caller, and belongs to no group (ingest.py explains why).
"""

from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from headgate.eventlog.connection import PASSING_CODES, RIGHTS_CODES, KafkaConnection
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.lasting_reader import OffsetGoneError
from headgate.eventlog.log import LogError
from headgate.eventlog.partition_reader import PartitionMissingError, PartitionReader
from headgate.sources.offsets import OffsetExpiredError, TopicMissingError

__all__ = ["READER_BYTES_MAX", "group_of", "judge_member", "open_clients", "source_error"]

SESSION_TIMEOUT_MS: Final = 10_000
"""A process that was killed keeps its partitions for so long; the brokers' default is 45 s."""

READER_BYTES_MAX: Final = 16 * 1024 * 1024
"""What one look of the reader can bring, of all partitions together: half of it is fetched ahead, and a fetch that is
under way then may bring as much. (One record may be larger.)"""


def group_of(cluster: str, log_name: str, name: str) -> str:
    """The consumer group by which processes share the partitions."""
    return f"{cluster}.ingest.{log_name}.{name}"


def open_clients(log: KafkaLog, log_name: str, name: str) -> tuple[Any, PartitionReader]:
    """The member and the reader; neither holds a partition yet."""
    member = log.connection.client(
        Consumer,
        client_id="headgate-ingest",
        group_id=group_of(log.cluster, log_name, name),
        partition_assignment_strategy="cooperative-sticky",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        enable_auto_commit=False,
        enable_auto_offset_store=False,
    )
    reader = PartitionReader(
        log.connection,
        {},
        client_id="headgate-ingest-reader",
        asks_beginning=True,
        fetch_wait_max_ms=50,
        fetch_max_bytes=READER_BYTES_MAX // 2,
        queued_max_messages_kbytes=READER_BYTES_MAX // 2048,
    )
    return member, reader


def judge_member(connection: KafkaConnection, message: Any) -> None:
    """Raise what the member was given, if it does not pass by itself. Raises TopicMissingError, LogError."""
    error = None if message is None else message.error()
    if error is None or error.code() == KafkaError._AUTO_OFFSET_RESET:
        return  # The member fetches nothing, so it does not matter where it would begin.
    if error.code() in RIGHTS_CODES:
        raise connection.failed("sharing the topics in a group", KafkaException(error))
    where = f"topic {message.topic()}, partition {message.partition()}"
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
        raise TopicMissingError(f"{where}: it does not exist any more ({error.str()})")
    if error.code() not in PASSING_CODES and not error.retriable():
        raise connection.failed(f"reading {where}", KafkaException(error))


def source_error(error: LogError) -> Exception:
    """What an error of the reader means to the process; the error itself if it means no more."""
    if isinstance(error, OffsetGoneError):
        return OffsetExpiredError(
            f"topic {error.partition.topic}, partition {error.partition.number}: what follows the last record that was "
            "copied has been deleted, so changes may be missing. To read what there is, start with another --name: it "
            "copies all partitions from their oldest records, also what was copied before"
        )
    if isinstance(error, PartitionMissingError):
        return TopicMissingError(f"topic {error.partition.topic}: it does not exist any more ({error})")
    return error
