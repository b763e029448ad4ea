"""What each service may do on Kafka, where the brokers have an authorizer: one table, from which all else is made.

The page of the documents, the command that shows or grants the rights, and a test that grants exactly these and then
runs every service. A name that ends with a dot is a prefix.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["RIGHTS", "Grant", "Resource", "Right", "Topics", "grants", "group_stems", "who_has_rights"]


class Resource(StrEnum):
    """Kafka's kinds of resources, as people call them."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    CLUSTER = "cluster"


class Topics(StrEnum):
    """Topics that do not follow from a cluster's name."""

    FEEDS = "the feeds' topics"
    CHANGE_LOGS = "the change logs' topics"
    COPIED = "the copied topics"
    TARGETS = "the target topics"


class Right(NamedTuple):
    """``names``: with ``{cluster}`` for the cluster's name, or one of Topics. ``operations``: as Kafka calls them."""

    who: str
    resource: Resource
    names: tuple[str, ...] | Topics
    operations: tuple[str, ...]


class Grant(NamedTuple):
    """One operation on one resource; ``is_prefix``: on all whose names begin so."""

    who: str
    resource: Resource
    name: str
    is_prefix: bool
    operation: str


_LOOK: Final = ("Describe", "DescribeConfigs", "Read")
_CONTROL: Final = ("{cluster}.",)
_DECIDED: Final = ("__transaction_state",)
_PROGRESS: Final = "headgate-sink-progress"


def _topic(who: str, names: tuple[str, ...] | Topics, *operations: str) -> Right:
    return Right(who, Resource.TOPIC, names, operations)


def _writes(who: str, *topics: str) -> Right:
    return _topic(who, tuple(f"{{cluster}}.{topic}" for topic in topics), "Write")


def _transactions(who: str, *names: str) -> Right:
    return Right(who, Resource.TRANSACTIONAL_ID, names, ("Describe", "Write"))


RIGHTS: Final[tuple[Right, ...]] = (
    _topic("coordinator", _CONTROL, *_LOOK),
    _writes("coordinator", "announce", "dispatch", "checkpoint", "changefeed", "deadletter", "generation"),
    _transactions("coordinator", "{cluster}."),
    _topic("coordinator", _DECIDED, "Describe", "Read"),
    _topic("coordinator", Topics.FEEDS, *_LOOK),
    _topic("agent", _CONTROL, *_LOOK),
    _writes("agent", "announce", "sync", "checkpoint", "deadletter"),
    _topic("agent", Topics.FEEDS, "Describe", "Read"),
    _topic("views", _CONTROL, *_LOOK),
    _topic("views", Topics.FEEDS, "Describe", "Read"),
    Right("views", Resource.GROUP, ("{cluster}.views.", "{cluster}.feed."), ("Read", "Delete")),
    _topic("migration", _CONTROL, *_LOOK),
    _writes("migration", "announce", "migration", "changefeed"),
    _topic("migration", Topics.FEEDS, "Describe", "Read"),
    # The cluster's name occurs twice in an owner's transactional id.
    _transactions("migration", "{cluster}.{cluster}.migration-0"),
    _topic("migration", _DECIDED, "Describe", "Read"),
    _topic("generation", _CONTROL, *_LOOK),
    _writes("generation", "announce", "generation"),
    _transactions("generation", "{cluster}.{cluster}.generation-0", "{cluster}.generation."),
    _topic("generation", _DECIDED, "Describe", "Read"),
    _topic("generation", Topics.CHANGE_LOGS, "Alter", "Create", "Delete", *_LOOK, "Write"),
    _topic("writer", _CONTROL, *_LOOK),
    _writes("writer", "generation"),
    _transactions("writer", "{cluster}.generation."),
    _topic("writer", _DECIDED, "Describe", "Read"),
    _topic("writer", Topics.CHANGE_LOGS, *_LOOK, "Write"),
    _topic("ingest", _CONTROL, *_LOOK),
    _writes("ingest", "generation"),
    _transactions("ingest", "{cluster}.generation."),
    _topic("ingest", _DECIDED, "Describe", "Read"),
    _topic("ingest", Topics.CHANGE_LOGS, *_LOOK, "Write"),
    _topic("ingest", Topics.COPIED, "Describe", "Read"),
    Right("ingest", Resource.GROUP, ("{cluster}.ingest.",), ("Read",)),
    # The user of a Kafka sink's address, in the cluster of the target topics.
    _topic("sink", Topics.TARGETS, "Create", "Describe", "DescribeConfigs", "Write"),
    _topic("sink", (_PROGRESS,), "Create", *_LOOK, "Write"),
    _transactions("sink", f"{_PROGRESS}."),
    _topic("sink", _DECIDED, "Describe", "Read"),
    Right("sink", Resource.CLUSTER, ("kafka-cluster",), ("Describe",)),
    _topic("reader", _CONTROL, *_LOOK),
    _writes("reader", "generation"),
    _topic("reader", Topics.CHANGE_LOGS, "Describe", "Read"),
    _topic("operator", _CONTROL, "Create", *_LOOK),
    _topic("operator", ("{cluster}.announce", "{cluster}.deadletter"), "AlterConfigs"),
    _writes("operator", "changefeed", "deadletter"),
    _writes("operator", "generation", "migration-request"),
    _topic("operator", Topics.FEEDS, *_LOOK, "Write"),
    _topic("approver", _CONTROL, *_LOOK),
    _writes("approver", "migration-approval"),
)
"""All of them, by service."""


def who_has_rights() -> tuple[str, ...]:
    """Services and other clients that need a user of their own, in the order of the table."""
    return tuple(dict.fromkeys(right.who for right in RIGHTS))


def group_stems() -> tuple[str, ...]:
    """How the names of the services' consumer groups begin, with ``{cluster}`` for the cluster's name."""
    return tuple(dict.fromkeys(name for right in RIGHTS if right.resource is Resource.GROUP for name in right.names))


def grants(cluster: str, topics: Mapping[Topics, Sequence[str]], who: Sequence[str] = ()) -> list[Grant]:
    """What ``who`` (all if empty) needs in a cluster; ``topics`` names the topics by kind, none if absent."""
    found: list[Grant] = []
    for right in RIGHTS:
        if who and right.who not in who:
            continue
        names = topics.get(right.names, ()) if isinstance(right.names, Topics) else right.names
        for name in names:
            full = name if isinstance(right.names, Topics) else name.format(cluster=cluster)
            found += [Grant(right.who, right.resource, full, full.endswith("."), each) for each in right.operations]
    return found
