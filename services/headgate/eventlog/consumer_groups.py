"""Consumer groups that a cluster's services leave at the brokers: those of views, of feeds' positions and of ingest."""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection, code_of
from headgate.eventlog.log import LogError

__all__ = ["delete_groups", "groups_of_cluster"]

_KINDS: Final = ("feed", "views", "ingest")
"""The word behind the cluster's name (docs/configuration.md, rights)."""

_GONE: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND})


def groups_of_cluster(connection: KafkaConnection, cluster: str) -> list[str]:
    """The groups of the cluster that this user may see, sorted. Raises LogError."""
    future = connection.admin.list_consumer_groups(request_timeout=ADMIN_SECONDS_MAX)
    found = connection.wait("listing consumer groups", future)
    prefixes = tuple(f"{cluster}.{kind}." for kind in _KINDS)
    return sorted(group.group_id for group in found.valid if group.group_id.startswith(prefixes))


def delete_groups(connection: KafkaConnection, groups: Sequence[str]) -> list[str]:
    """Delete groups. Returns why some are left, a sentence each: a client is in one, or the user lacks the right."""
    if not groups:
        return []
    left = []
    futures = connection.admin.delete_consumer_groups(list(groups), request_timeout=ADMIN_SECONDS_MAX)
    for group, future in sorted(futures.items()):
        try:
            connection.wait(f"deleting consumer group {group}", future)
        except LogError as error:
            if code_of(error) not in _GONE:
                left.append(str(error))
    return left
