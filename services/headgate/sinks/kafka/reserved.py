"""Topics that are never written as tables: with state of Headgate or the brokers, or that the feed itself reads."""

from collections.abc import Callable
from typing import Final

from headgate.sinks.contract import FeedIdentity, SinkRefusedError

__all__ = ["check_not_read", "check_not_reserved"]

BROKERS_OWN: Final = "__"
"""How the names of the brokers' own topics begin, such as __consumer_offsets."""


def check_not_read(topic: str, identity: FeedIdentity, cluster: str, reads: Callable[[str], bool]) -> None:
    """Raise SinkRefusedError for a topic that the feed reads. ``cluster``: the target's id."""
    if identity.cluster_id.partition("/")[0] == cluster and reads(topic):
        raise SinkRefusedError(
            f"topic {topic} is one that the feed itself reads: every record would come back as a change. Choose "
            "another name in sink.table, such as copy.{schema}.{table}, which source.topic_pattern does not match"
        )


def check_not_reserved(topic: str, identity: FeedIdentity, cluster: str, progress: str) -> None:
    """Raise SinkRefusedError for a reserved topic. ``cluster``: the target's id. ``progress``: its progress topic."""
    control_cluster, _, prefix = identity.cluster_id.partition("/")
    is_control = control_cluster == cluster and bool(prefix) and topic.startswith(prefix)
    if is_control:
        what = f"begins with {prefix}, as the control topics of this Headgate cluster do"
    elif topic == progress:
        what = "has the positions of Kafka sinks"
    elif topic.startswith(BROKERS_OWN):
        what = f"begins with {BROKERS_OWN}, as the brokers' own topics do"
    else:
        return
    raise SinkRefusedError(
        f"topic {topic} {what}. Choose another name in sink.table, such as copy.{{schema}}.{{table}}"
    )
