"""Kafka's ids of topics, by which a re-created topic is distinguished from the old one of the same name.

Offsets describe how far a topic has been read, and start again with each topic. So a process that remembers an offset
also remembers the id of its topic, and reads nothing of a topic with another id. Ids are asked for *before* offsets: a
topic that is replaced in between then has the wrong id with the right offsets, which is noticed, and never the other
way round.
"""

from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import KafkaError, TopicCollection

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection, code_of
from headgate.eventlog.log import LogError
from headgate.sources.offsets import SourceError, SourceUnreachableError, TopicMissingError

_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._NOENT})

_TOPICS_PER_REQUEST_MAX: Final = 1_000
"""A description has every partition with its replicas: some hundred kilobytes for as many topics."""


class TopicReplacedError(SourceError):
    """A topic is not the one that the known offsets are of."""

    code = "source_topic_replaced"


def topic_ids(connection: KafkaConnection, topics: Iterable[str]) -> dict[str, str | None]:
    """Topic → id, of those that exist; None from a broker before 2.8, which has none. Raises SourceUnreachableError.

    For code that watches topics. Code that keeps an id calls ``ids_of_existing``: a topic that the broker does not know
    at the moment would be kept as one without an id, which any topic of its name passes for.
    """
    names = sorted(set(topics))
    found: dict[str, str | None] = {}
    for first in range(0, len(names), _TOPICS_PER_REQUEST_MAX):
        found |= _asked(connection, names[first : first + _TOPICS_PER_REQUEST_MAX])
    return found


def ids_of_existing(connection: KafkaConnection, topics: Iterable[str]) -> dict[str, str | None]:
    """Topic → id of each of ``topics``; None from a broker before 2.8.

    Raises TopicMissingError, which names those that do not exist, and SourceUnreachableError.
    """
    names = set(topics)
    found = topic_ids(connection, names)
    if missing := sorted(names - found.keys()):
        raise TopicMissingError(
            f"topic {', '.join(missing)} does not exist, or the broker does not know it yet: create it, let its "
            "connector create it, or correct the name"
        )
    return found


def topic_id_of(connection: KafkaConnection, topic: str) -> str | None:
    """The id of one topic that exists. Raises TopicMissingError, SourceUnreachableError."""
    return ids_of_existing(connection, (topic,))[topic]


class MissingTopics:
    """Which topics of those that are watched do not exist any more, as far as a broker's answers show it."""

    def __init__(self) -> None:
        self._missing: frozenset[str] = frozenset()

    def gone(self, watched: Iterable[str], found: Collection[str]) -> frozenset[str]:
        """Topics that were missing at this look and at the one before.

        At one look only, a topic may be so new, or a broker so shortly up, that the broker does not know it yet.
        """
        missing = frozenset(watched).difference(found)
        gone = missing & self._missing
        self._missing = missing
        return gone


def check_topic_id(topic: str, known: str | None, seen: str | None) -> None:
    """Raises TopicReplacedError where both ids are known and differ."""
    if None not in (known, seen) and known != seen:
        raise TopicReplacedError(
            f"topic {topic} was deleted and re-created: its id is {seen}, but the known offsets belong to id "
            f"{known}. Headgate does not read it. To apply all that it contains now: `headgate feed pause`, then "
            "`headgate feed resume --from "
            "earliest` (changes that only the old topic had are lost; compare with `headgate verify`)"
        )


def check_given_id(topic: str, given: str | None, seen: str | None) -> None:
    """Raise TopicReplacedError where offsets that a person gives belong to another topic than the present one.

    ``given`` is the id beside the offsets, None if none was given. ``seen`` is the present topic's.
    """
    if given is None or given == seen:
        return
    if seen is None:
        raise TopicReplacedError(
            f"the start offsets of topic {topic} belong to the topic with id {given}, and this cannot be checked: the "
            "broker reports no topic ids. Remove topic_id if you know that they belong to the current topic"
        )
    raise TopicReplacedError(
        f"the start offsets of topic {topic} belong to the topic with id {given}, but the current topic has id "
        f"{seen}: it was deleted and re-created, so these offsets are of other records. Start at earliest, or give "
        f"offsets of the current topic with topic_id: {seen}"
    )


def _asked(connection: KafkaConnection, names: list[str]) -> dict[str, str | None]:
    what = "asking for the ids of source topics"
    admin = connection.admin  # held until it has answered (eventlog/leaders.py)
    futures = admin.describe_topics(TopicCollection(names), request_timeout=ADMIN_SECONDS_MAX)
    found: dict[str, str | None] = {}
    for name, future in futures.items():
        try:
            described = connection.wait(what, future)
        except LogError as error:
            if code_of(error) in _MISSING:
                continue
            raise SourceUnreachableError(str(error)) from error
        uuid = described.topic_id
        has_id = uuid.get_most_significant_bits() or uuid.get_least_significant_bits()
        found[name] = str(uuid) if has_id else None
    return found
