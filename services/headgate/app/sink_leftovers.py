"""What Headgate leaves at sinks and changed databases once no feed writes there, and its removal.

A database has the schema ``headgate``, a Kafka cluster the topic of positions. Both may serve several clusters of
Headgate, and only what no other cluster uses is removed. Ledgers of lakes are named and stay: they are shared by
all clusters, and no lock keeps another one from using them.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from headgate.capture.sink import running
from headgate.databases.address import Address, Target
from headgate.databases.errors import DatabaseError
from headgate.databases.kinds import CONNECTED
from headgate.databases.mysql.own_schema import opened_mysql
from headgate.databases.own_schema import OwnSchema, SchemaInUseError
from headgate.databases.postgresql.own_schema import opened_postgresql
from headgate.eventlog.log import LogError
from headgate.migration.strategies.target import mark_of
from headgate.sinks.contract import SinkError
from headgate.sinks.kafka.removal import ProgressTopic, opened_progress
from headgate.sinks.registry import plug_of

__all__ = ["NO_ADDRESS", "Leftover", "LeftoverState", "SinkPlace", "examine", "places_once", "remove_leftover"]


class SinkPlace(msgspec.Struct, frozen=True):
    """A place that feeds or schema changes write to. ``kind``: of its sink; ``given_in``: where its address is from."""

    kind: str
    target: Target
    given_in: str

    @property
    def address(self) -> Address:
        """Raises DatabaseError, or SinkError for a kind of sink that cannot be a named connection."""
        if self.kind in CONNECTED:
            return CONNECTED[self.kind].address(self.target.dsn, self.target.options)
        return plug_of(self.kind).address(self.target.dsn)


class LeftoverState(StrEnum):
    """What a leftover is, or what became of it."""

    ABSENT = "nothing there"
    REMOVABLE = "will be deleted"
    REMOVED = "deleted"
    KEPT = "stays"
    UNKNOWN = "cannot be read"
    FAILED = "not deleted"


class Leftover(msgspec.Struct, frozen=True):
    """What is at a place. ``why`` it stays, or was not read or removed. ``by_hand``: the command that removes it."""

    what: str
    place: str
    standing: LeftoverState
    why: str = ""
    by_hand: str = ""


class _Remover(Protocol):
    """One leftover, over an open session. Methods raise DatabaseError, SchemaInUseError, SinkError, LogError."""

    def why_kept(self) -> str | None:
        """Why it must stay, empty if it can be removed; None if it does not exist."""
        ...

    def remove(self) -> None:
        """Remove it."""
        ...


class _SchemaRemover:
    def __init__(self, schema: OwnSchema) -> None:
        self._schema = schema

    def why_kept(self) -> str | None:
        """See _Remover."""
        contents = self._schema.read()
        return contents.why_kept if contents.exists else None

    def remove(self) -> None:
        """See _Remover."""
        self._schema.drop()


class _TopicRemover:
    def __init__(self, topic: ProgressTopic, cluster_id: str) -> None:
        self._topic = topic
        self._cluster_id = cluster_id

    def why_kept(self) -> str | None:
        """See _Remover."""
        if not self._topic.exists:
            return None
        others = self._topic.other_clusters(self._cluster_id)
        return f"it is used by cluster {', '.join(others)}" if others else ""

    def remove(self) -> None:
        """See _Remover. Brokers have no lock, so who uses it is read right before."""
        if why := self.why_kept():
            raise SchemaInUseError(why)
        self._topic.delete()


@contextmanager
def _schema_of_postgresql(place: SinkPlace, cluster_id: str) -> Iterator[_Remover]:
    with opened_postgresql(place.target, cluster_id, mark_of(cluster_id)) as schema:
        yield _SchemaRemover(schema)


@contextmanager
def _schema_of_mysql(place: SinkPlace, cluster_id: str) -> Iterator[_Remover]:
    with opened_mysql(place.target, cluster_id, mark_of(cluster_id)) as schema:
        yield _SchemaRemover(schema)


@contextmanager
def _topic_of_kafka(place: SinkPlace, cluster_id: str) -> Iterator[_Remover]:
    with opened_progress(place.target) as topic:
        yield _TopicRemover(topic, cluster_id)


class _Kind(msgspec.Struct, frozen=True):
    """What Headgate leaves at sinks of a kind: its name, and how it is opened."""

    what: str
    statement: str
    opened: "_Opened"


class _Opened(Protocol):
    def __call__(self, place: SinkPlace, cluster_id: str) -> AbstractContextManager[_Remover]: ...


_KINDS: Final[Mapping[str, _Kind]] = {
    "postgresql": _Kind("schema headgate", "DROP SCHEMA headgate CASCADE", _schema_of_postgresql),
    "mysql": _Kind("database headgate", "DROP DATABASE headgate", _schema_of_mysql),
    "kafka": _Kind("topic headgate-sink-progress", "", _topic_of_kafka),
}

NO_ADDRESS: Final = (DatabaseError, SinkError)
"""Errors of a place's address."""

_ERRORS: Final = (*NO_ADDRESS, LogError)


def places_once(places: Iterator[SinkPlace]) -> list[SinkPlace]:
    """Each place once: all databases of a MySQL server have one schema of Headgate, those of PostgreSQL one each."""
    found: dict[tuple[str, str, str], SinkPlace] = {}
    for place in places:
        try:
            address = place.address
            key = (place.kind, address.server, address.database if place.kind == "postgresql" else "")
        except NO_ADDRESS:
            key = (place.kind, place.target.dsn, "")
        found.setdefault(key, place)
    return list(found.values())


def examine(place: SinkPlace, cluster_id: str) -> Leftover:
    """What is there. Never raises: a place that cannot be read has the reason."""
    nothing = _leftover(place, LeftoverState.ABSENT)
    kind = _KINDS.get(place.kind)
    if kind is None:
        return msgspec.structs.replace(
            nothing,
            what="ledgers _headgate",
            standing=LeftoverState.KEPT,
            why="they are shared by all clusters that write to this lake; remove _headgate once no feed does",
        )
    try:
        with kind.opened(place, cluster_id) as remover:
            why = remover.why_kept()
    except _ERRORS as error:
        return _leftover(place, LeftoverState.UNKNOWN, str(error))
    if why is None:
        return nothing
    return _leftover(place, LeftoverState.KEPT if why else LeftoverState.REMOVABLE, why)


def remove_leftover(place: SinkPlace, cluster_id: str) -> Leftover:
    """Remove what is there, if it can be. Never raises."""
    try:
        with _KINDS[place.kind].opened(place, cluster_id) as remover:
            remover.remove()
    except SchemaInUseError as error:
        return _leftover(place, LeftoverState.KEPT, str(error))
    except _ERRORS as error:
        return _leftover(place, LeftoverState.FAILED, str(error))
    return _leftover(place, LeftoverState.REMOVED)


def _leftover(place: SinkPlace, standing: LeftoverState, why: str = "") -> Leftover:
    kind = _KINDS.get(place.kind)
    return Leftover(
        what="" if kind is None else kind.what,
        place=f"{_shown(place)} ({place.given_in})",
        standing=standing,
        why=why,
        by_hand="" if kind is None else _by_hand(place, kind),
    )


def _shown(place: SinkPlace) -> str:
    """The server and the database, without user and password."""
    try:
        address = place.address
    except NO_ADDRESS:
        return place.kind
    database = f"/{address.database}" if place.kind == "postgresql" else ""
    where = address.server or ",".join(address.hosts)
    return f"{place.kind}://{where}{database}" if where else address.text


def _by_hand(place: SinkPlace, kind: _Kind) -> str:
    if place.kind == "kafka":
        try:
            brokers = place.address.server
        except NO_ADDRESS:
            brokers = "BROKERS"
        return f"kafka-topics --bootstrap-server {brokers} --delete --topic headgate-sink-progress"
    try:
        return running(place.target, kind.statement)
    except NO_ADDRESS:
        return kind.statement
