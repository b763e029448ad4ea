"""Consumer groups that a cluster's services leave at the brokers.

``stems`` are how their names begin, with ``{cluster}`` for the cluster's name.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection, code_of, reason_of
from headgate.eventlog.log import LogError
from headgate.eventlog.topics import topic_name

__all__ = ["delete_groups", "groups_among", "groups_of_cluster"]

_OF_EACH_CLUSTER: Final = "announce"
"""A control topic: a cluster exists if this one does."""

_GONE: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND})


def groups_of_cluster(connection: KafkaConnection, cluster: str, stems: Sequence[str]) -> list[str]:
    """The groups of the cluster that this user may see, sorted. Raises LogError, also if some brokers do not answer."""
    future = connection.admin.list_consumer_groups(request_timeout=ADMIN_SECONDS_MAX)
    found = connection.wait("listing consumer groups", future)
    if found.errors:
        whys = "; ".join(sorted({reason_of(error) for error in found.errors}))
        raise LogError(
            f"listing consumer groups on Kafka at {connection.bootstrap_servers}: some brokers have not answered: "
            f"{whys}. Try again"
        )
    try:
        topics = connection.admin.list_topics(timeout=ADMIN_SECONDS_MAX).topics
    except KafkaException as error:
        raise connection.failed("listing topics", error) from error
    return groups_among((group.group_id for group in found.valid), cluster, stems, topics)


def groups_among(groups: Iterable[str], cluster: str, stems: Sequence[str], topics: Iterable[str]) -> list[str]:
    """Those of the cluster, sorted. ``topics``: all topics, which show the names of other clusters.

    Names may contain dots: ``prod.feed.views.1`` is a group of cluster ``prod.feed`` if there is one, else of ``prod``.
    """
    suffix = topic_name("", _OF_EACH_CLUSTER)
    others = [
        topic.removesuffix(suffix) for topic in topics if topic.startswith(f"{cluster}.") and topic.endswith(suffix)
    ]
    others_prefixes = tuple(prefix for other in others if other != cluster for prefix in _prefixes(stems, other))
    return sorted(
        group
        for group in groups
        if group.startswith(_prefixes(stems, cluster)) and not group.startswith(others_prefixes)
    )


def _prefixes(stems: Sequence[str], cluster: str) -> tuple[str, ...]:
    return tuple(stem.format(cluster=cluster) for stem in stems)


def delete_groups(connection: KafkaConnection, groups: Sequence[str]) -> dict[str, str]:
    """Delete groups. Returns those that are left, and why: a client is in one, or the user lacks the right."""
    if not groups:
        return {}
    left = {}
    futures = connection.admin.delete_consumer_groups(list(groups), request_timeout=ADMIN_SECONDS_MAX)
    for group, future in sorted(futures.items()):
        try:
            connection.wait(f"deleting consumer group {group}", future)
        except LogError as error:
            if code_of(error) not in _GONE:
                left[group] = str(error)
    return left
