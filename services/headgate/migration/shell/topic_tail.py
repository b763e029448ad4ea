"""The end of a table's topic, in which the cut-over looks for the event of a change.

Of each event only the fields that name the change in the server's log are read, as JSON, or as Avro with a registry's
schemas.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from headgate.config.registry_spec import RegistrySpec
from headgate.databases.connections import named_registry, named_registry_options
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.formats.change import DATA_ERRORS, ChangeError
from headgate.formats.debezium_avro import Fields, SchemaById
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import SchemaRegistry
from headgate.migration.strategies.contract import DatabaseUnavailableError
from headgate.migration.strategies.online.lane import LastChange, TopicPosition
from headgate.migration.strategies.target import refusing
from headgate.records.identifiers import show_identifier
from headgate.sources.offsets import SourceError
from headgate.sources.origin import Origin, origin_of
from headgate.sources.topics import present_topics

__all__ = ["Events", "FeedsUnavailableError", "Looked", "Schemas", "Tail", "registry_spec"]

TAIL_POLL_SECONDS: Final = 0.02
"""Clients wait for the answer."""

POLL_RECORDS_MAX: Final = 500

EVENTS_MAX: Final = 500_000
"""Changes that a tail remembers: far more than come during one try of a cut-over. The oldest are forgotten first; a try
that misses them is made again."""

SCHEMAS_MAX: Final = 256
"""Schemas of one registry that are remembered, the oldest is let go first."""


class FeedsUnavailableError(DatabaseUnavailableError):
    """No coordinator, broker or registry answers: what became of a request is not known, it is found out."""


class _Source(msgspec.Struct):
    lsn: int | None = None
    txId: int | None = None  # noqa: N815 - Debezium's name
    gtid: str | None = None
    pos: int = 0


class _Event(msgspec.Struct):
    op: str
    source: _Source


class _Wrapped(msgspec.Struct):
    payload: _Event


_EVENT: Final = (("op",), ("source", "lsn"), ("source", "txId"), ("source", "gtid"), ("source", "pos"))
_ORIGIN: Final = (("source", "connector"), ("source", "db"), ("source", "schema"), ("source", "table"))


def registry_spec(name: str) -> RegistrySpec:
    """The registry of that name, as a feed has it. Raises RefusedError."""
    with refusing():
        return named_registry(name, "--registry")


class Schemas:
    """Texts of schemas by id, each asked for once: a tail is read while clients wait. For any thread."""

    def __init__(self, registry: str) -> None:
        """Nothing is asked yet. Raises RefusedError."""
        self._registry = SchemaRegistry(registry_spec(registry), named_registry_options(registry))
        self._known: dict[int, str] = {}
        self._lock = threading.Lock()

    def __call__(self, schema_id: int) -> str:
        """Raises ChangeError, SchemasUnavailableError."""
        with self._lock:
            if schema_id not in self._known:
                text = self._registry.schema(schema_id)
                while len(self._known) >= SCHEMAS_MAX:
                    del self._known[next(iter(self._known))]
                self._known[schema_id] = text
            return self._known[schema_id]

    def check(self) -> None:
        """Raise SchemasUnavailableError, unless a registry that has Avro answers."""
        with self._lock:
            self._registry.check()


class Looked:
    """The origins of the records that it is given (``sources.origin``); ``is_other``: some are not in that form."""

    def __init__(self, schemas: SchemaById | None) -> None:
        """``schemas``: the records are in Avro, else in JSON."""
        self._fields = None if schemas is None else Fields(schemas, _ORIGIN)
        self.is_other = False

    def __call__(self, value: bytes | None) -> Origin | None:
        """See origin.origin_of. Raises SchemasUnavailableError."""
        if not value:
            return None
        self.is_other = self.is_other or (value[0] == 0) != (self._fields is not None)
        if self._fields is None:
            return origin_of(value)
        try:
            connector, database, schema, table = self._fields(value)
        except ChangeError:
            return None
        if None in (connector, database, table):
            return None
        return Origin(connector, database, show_identifier([part for part in (schema, table) if part is not None]))


class Tail:
    """See lane.TopicTail. Reading begins with the first question."""

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        start: Mapping[int, int],
        schemas: SchemaById | None,
        topic_id: str | None = None,
    ) -> None:
        """Raises FeedsUnavailableError."""
        self.topic_id = topic_id
        self._connection, self._topic = connection, topic
        places = {Partition(topic, number): offset for number, offset in start.items()}
        self._reader = PartitionReader(connection, places, client_id="headgate-migration")
        self._events = Events(schemas)
        self._read(0.0)

    def find(self, changes: Sequence[LastChange], seconds: float) -> list[tuple[TopicPosition, ...]]:
        """See TopicTail. Raises FeedsUnavailableError if a registry does not answer, or the topic cannot be read."""
        deadline, events = time.monotonic() + seconds, self._events
        found = [events.places(change) for change in changes]
        while not all(found) and (left := deadline - time.monotonic()) > 0:
            self._read(min(TAIL_POLL_SECONDS, left))
            found = [places or events.places(change) for change, places in zip(changes, found, strict=True)]
        return found

    def partitions(self, seconds: float) -> frozenset[int]:
        """See TopicTail. Raises FeedsUnavailableError, also if the broker does not know the topic for all that time.

        A broker may not know a topic for a moment. The next try begins without the lock, and checks if it is gone.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                present = present_topics(self._connection, left)
            except SourceError as error:
                raise FeedsUnavailableError(f"asking for the partitions of {self._topic}: {error}") from error
            if self._topic in present:
                return frozenset(range(present[self._topic]))
            time.sleep(min(TAIL_POLL_SECONDS, left))
        raise FeedsUnavailableError(f"the broker has not listed topic {self._topic} for {seconds:.1f} s")

    def close(self) -> None:
        """Let go."""
        self._reader.close()

    def _read(self, seconds: float) -> None:
        try:
            messages = self._reader.poll(POLL_RECORDS_MAX, seconds)
        except LogError as error:
            raise FeedsUnavailableError(str(error)) from error
        for message in messages:
            self._events.add(message.value(), TopicPosition(int(message.partition() or 0), int(message.offset() or 0)))


class Events:
    """The events that were seen on a topic, by the names of their changes."""

    def __init__(self, schemas: SchemaById | None = None) -> None:
        """``schemas``: the records are in Avro, else in JSON."""
        self._read: Callable[[bytes], _Event | None] = _event if schemas is None else _Avro(schemas)
        self._places: dict[tuple[str, int | str], dict[tuple[str, int], TopicPosition]] = {}

    def add(self, value: bytes | None, place: TopicPosition) -> None:
        """Add one record. A connector that was restarted may send an event twice: the later one counts.

        Raises FeedsUnavailableError.
        """
        event = self._read(value or b"")
        if event is None:
            return
        source = event.source
        for name in (("lsn", source.lsn), ("txid", source.txId), ("gtid", source.gtid)):
            if name[1] is not None:
                self._places.setdefault((name[0], name[1]), {})[event.op, source.pos] = place
        while len(self._places) > EVENTS_MAX:
            del self._places[next(iter(self._places))]

    def places(self, change: LastChange) -> tuple[TopicPosition, ...]:
        """Where the change's events are, if all of them were seen; of those that fit, the last ones."""
        names = (("lsn", change.lsn), ("txid", change.txid), ("gtid", change.gtid))
        name, value = next((name, value) for name, value in names if value is not None)
        seen = self._places.get((name, value), {})
        for form in change.forms:
            fitting = [{pos: place for (op, pos), place in seen.items() if op == wanted} for wanted in form]
            if all(len(places) >= change.places for places in fitting):
                return tuple(places[max(places)] for places in fitting)
        return ()


class _Avro:
    """Reads events in Avro; None for a record that is not an event, such as a tombstone."""

    def __init__(self, schemas: SchemaById) -> None:
        self._fields = Fields(schemas, _EVENT)

    def __call__(self, value: bytes) -> _Event | None:
        try:
            op, lsn, txid, gtid, pos = self._fields(value)
        except ChangeError:
            return None
        except SchemasUnavailableError as error:
            raise FeedsUnavailableError(str(error)) from error
        return _Event(op, _Source(lsn, txid, gtid, pos or 0))


def _event(value: bytes) -> _Event | None:
    """With or without its schema beside it."""
    with suppress(*DATA_ERRORS):
        return msgspec.json.decode(value, type=_Wrapped).payload
    with suppress(*DATA_ERRORS):
        return msgspec.json.decode(value, type=_Event)
    return None
