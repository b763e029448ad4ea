"""Warns about changes that compaction may have removed from a source topic, which nothing shows later.

A compacted topic keeps the newest record of each key, and none or all of the older ones. A row whose records are whole
comes out right all the same, and a tombstone is read as a delete; the format reports what does not come out right.
"""

from collections.abc import Iterable
from typing import Final

from headgate.config.feed import FeedSpec
from headgate.config.plugs import FORMATS
from headgate.eventlog.connection import KafkaConnection
from headgate.records.name_lists import shown_names
from headgate.sources.topic_settings import topic_settings

_TABLES: Final = (
    "; and changes of one table's rows that share a key with another table's. Tombstones there are skipped, because "
    "they do not name their table"
)


def compaction_warnings(connection: KafkaConnection, spec: FeedSpec, topics: Iterable[str]) -> tuple[str, ...]:
    """A sentence on the topics that are compacted, and one on those of which that cannot be asked; none as a rule."""
    told, untold = topic_settings(connection, topics)
    compacted = [topic for topic, settings in told.items() if "compact" in (settings.get("cleanup.policy") or "")]
    warnings = []
    if compacted:
        lost = FORMATS[spec.source.format].compacted_away + (_TABLES if spec.source.tables else "")
        warnings.append(
            f"warning: {_named(compacted)} compacted (cleanup.policy), so these may be missing: {lost}. Set "
            "cleanup.policy=delete on source topics"
        )
    if untold:
        warnings.append(
            f"warning: whether {_named(untold)} compacted is not known. Grant DescribeConfigs on the topic: "
            f"{next(iter(untold.values()))}"
        )
    return tuple(warnings)


def _named(topics: Iterable[str]) -> str:
    names = sorted(topics)
    return f"topic {names[0]} is" if len(names) == 1 else f"topics {shown_names(names)} are"
