"""What compaction may have taken out of a source topic: said when a feed is made, for afterwards nothing shows it.

A compacted topic keeps the newest record of each key, and of older ones none or all. A row whose records are whole
comes out right all the same, and a tombstone is read as a delete; what does not come out right stands in ``_LOST``.
"""

from collections.abc import Iterable
from typing import Final

from headgate.config.feed import FeedSpec, SourceFormat
from headgate.eventlog.connection import KafkaConnection
from headgate.sources.topic_settings import topic_settings

__all__ = ["compaction_warnings"]

NAMES_SHOWN_MAX: Final = 5

_DEBEZIUM: Final = (
    "a large column's value, where a later update of the row left it out (unavailable.value.placeholder): the sink "
    "keeps an older value, or the table stops; deletes, for who is behind by more than the topic's delete.retention.ms"
)
_CANAL: Final = (
    "changes of other rows of a message that a newer message of its key has replaced, for a message holds the rows of "
    "a statement"
)
_LOST: Final = {
    SourceFormat.DEBEZIUM_JSON: _DEBEZIUM,
    SourceFormat.DEBEZIUM_AVRO: _DEBEZIUM,
    SourceFormat.MAXWELL_JSON: "the delete of a row's old key, where its key was changed and the new row changed again",
    SourceFormat.CANAL_JSON: _CANAL,
    SourceFormat.TICDC_CANAL_JSON: _CANAL,
}
_TABLES: Final = (
    "; and changes of rows of one table for those of another with an equal key; tombstones there are passed over, for "
    "they do not say their table"
)


def compaction_warnings(connection: KafkaConnection, spec: FeedSpec, topics: Iterable[str]) -> tuple[str, ...]:
    """A sentence on the topics that are compacted, and one on those of which that cannot be asked; none as a rule."""
    told, untold = topic_settings(connection, topics)
    compacted = [topic for topic, settings in told.items() if "compact" in (settings.get("cleanup.policy") or "")]
    warnings = []
    if compacted:
        lost = _LOST[spec.source.format] + (_TABLES if spec.source.tables else "")
        warnings.append(
            f"warning: {_named(compacted)} compacted (cleanup.policy), so what is read may lack {lost}. Let source "
            "topics have cleanup.policy=delete"
        )
    if untold:
        warnings.append(
            f"warning: whether {_named(untold)} compacted cannot be asked (the right DescribeConfigs on the topic is "
            f"needed): {next(iter(untold.values()))}"
        )
    return tuple(warnings)


def _named(topics: Iterable[str]) -> str:
    names = sorted(topics)
    more = len(names) - NAMES_SHOWN_MAX
    shown = ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"topic {shown} is" if len(names) == 1 else f"topics {shown} are"
