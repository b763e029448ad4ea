"""Ends what a transactional.id has open in partitions, with markers alone: no record is written that readers would see.

librdkafka adds a partition to a transaction only together with a record of it. Kafka's protocol has a request for it,
and the broker then writes the transaction's marker into the partition, whether records came or not. aiokafka makes that
request. A marker ends all that its producer id has open in the partition, also what earlier transactions left there.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.decisions import Decision
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.python_security import UntranslatableError, security_of
from headgate.eventlog.transactions import TRANSACTION_TIMEOUT_MS

__all__ = ["write_markers"]

_log = logging.getLogger(__name__)

SECONDS_MAX: Final = 20.0
"""Takes 0.1 s. A broker that has just been restarted loads its log of transactions first (4 to 12 s)."""

REQUEST_MS: Final = 5_000
"""One request: less than all of them may take."""


def write_markers(
    connection: KafkaConnection, transactional_id: str, partitions: Collection[Partition], decision: Decision
) -> None:
    """Take the id, which fences its producer and aborts what it has open, and end ``partitions`` so.

    Partitions have their topics' full names. Raises LogError.
    """
    what = f"ending the transaction of {transactional_id}"
    try:
        asyncio.run(asyncio.wait_for(_write(connection, transactional_id, partitions, decision), SECONDS_MAX))
    except UntranslatableError as error:
        raise LogError(f"{what} on Kafka at {connection.bootstrap_servers}: {error}") from error
    except TimeoutError as error:
        raise connection.unreachable(what) from error


async def _write(
    connection: KafkaConnection, transactional_id: str, partitions: Collection[Partition], decision: Decision
) -> None:
    from aiokafka import AIOKafkaProducer, TopicPartition  # noqa: PLC0415 - seldom needed, and takes 0.2 s
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    security = security_of(connection.properties(), "transactions' ends")

    def made() -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=connection.bootstrap_servers,
            client_id="headgate-markers",
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=REQUEST_MS,
            security_protocol=security.protocol,
            ssl_context=security.context,
            sasl_mechanism=security.mechanism or "PLAIN",
            sasl_plain_username=security.username,
            sasl_plain_password=security.password,
        )

    try:
        async with made() as producer:
            await producer.begin_transaction()
            for each in sorted(partitions):
                producer._txn_manager.maybe_add_partition_to_txn(TopicPartition(each.topic, each.number))
            if decision is Decision.COMMIT:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        # The broker answers when it has decided. The next to take the id waits until all markers are written.
        async with made():
            pass
    except KafkaError as error:
        raise LogError(
            f"ending the transaction of {transactional_id} on Kafka at {connection.bootstrap_servers}: {error!r}"
        ) from error
