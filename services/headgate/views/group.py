"""The consumer group of one start: its name, the right to it, and its end.

Faust joins a group even where it commits nothing. Without the right to do so it would wait forever without an error,
so that is asked first.
"""

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, GROUP_PASSING_CODES, KafkaConnection, code_of
from headgate.eventlog.log import LogError

GROUP_PREFIX: Final = "views."
"""Behind the cluster's prefix. It ends with a dot, as all names do to which rights are given by prefix."""

ASK_AGAIN_SECONDS: Final = 1.0
"""Brokers that have just started load their groups first, and report that until they have."""


def group_of(prefix: str) -> str:
    """A new group."""
    return f"{prefix}{GROUP_PREFIX}{uuid.uuid4().hex}"


async def group_may_be_joined(connection: KafkaConnection, group: str, asked: Callable[[], bool]) -> None:
    """Return when the brokers allow it, or when ``asked`` to stop. LogError names a missing right."""
    while not asked():
        try:
            operations = (await asyncio.to_thread(_described, connection, group)).authorized_operations or []
        except LogError as error:
            code = code_of(error)
            if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                operations = []
            elif code not in GROUP_PASSING_CODES:
                raise
            else:
                await asyncio.sleep(ASK_AGAIN_SECONDS)
                continue
        if AclOperation.READ not in operations:
            stem = group.removesuffix(group.rsplit(".", 1)[-1])
            raise LogError(
                f"joining group {group} on Kafka at {connection.bootstrap_servers}: the user has no right to Read "
                f"groups whose names begin with {stem}. docs/reference/rights.md lists the rights of each service"
            )
        return


def group_was_forgotten(connection: KafkaConnection, group: str) -> None:
    """Delete the group, which is no longer used. Brokers delete one that a kill leaves over by themselves."""
    futures = connection.admin.delete_consumer_groups([group], request_timeout=ADMIN_SECONDS_MAX)
    # A broker that is away, or a right that is missing, must not spoil our end.
    with suppress(LogError):
        connection.wait(f"forgetting group {group}", futures[group])


def _described(connection: KafkaConnection, group: str) -> Any:
    futures: dict[str, Future[Any]] = connection.admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=ADMIN_SECONDS_MAX
    )
    return connection.wait(f"asking for the rights on group {group}", futures[group])
