"""Checks a feed's format against the newest records of its topics before the feed is accepted.

Two things: whether the records are in the feed's format, and what the connector seems to have changed in them already
(docs/types.md, "What no sink can correct"). Records that cannot be read now, and topics without any, show nothing.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from headgate.config.expressions import Kind
from headgate.config.feed import FeedSpec
from headgate.config.plugs import FORMATS, PlugError
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.avro_schema import columns_with_defaults as avro_columns
from headgate.formats.change import CONNECTOR, DATA_ERRORS, LACKING, Change, is_described, reason_of
from headgate.formats.debezium_avro import FRAME_BYTES, schema_id_of
from headgate.formats.debezium_schema import columns_with_defaults as json_columns
from headgate.formats.decoding import Decoder, SchemasUnavailableError, UndecodableError
from headgate.formats.expressions.declared import is_bytes
from headgate.formats.expressions.values import read_of_value
from headgate.formats.registry import DecoderNeeds, format_of
from headgate.formats.schema_registry import registry_of
from headgate.sources.newest import look_at_newest
from headgate.sources.offsets import SourceError

RECORDS_MAX: Final = 10
"""Records of each topic that are decoded. One is enough, unless it is a bad one."""

REASON_CHARACTERS_MAX: Final = 200

_DURATION: Final = "io.debezium.time.MicroDuration"


class FormatMismatchError(SourceError):
    """A topic's newest records are in another format than the feed's."""

    code = "source_format"


class Seen(msgspec.Struct):
    """What the newest records of one topic show.

    ``fitting``: how many the feed's format can read. ``others``: other formats that can read some of those it cannot.
    ``columns``: of the newest whole row; ``nulls``: those that were NULL in a row. ``defaults``: columns that may be
    NULL and have a default, by the schema; None if events have no schema. ``durations``: those whose values are numbers
    of microseconds. ``kinds``: column → the types that its values have as JSON, of events without schemas.
    ``key``: the columns of the newest record's key, empty if it has none.
    ``bytes_of_decimals``: columns of such events that are bytes in base64, if they are decimals at the source.
    ``semantics``: of the newest row (Change.semantics). ``key_semantics``: what a tombstone with the newest key would
    have, for a sink that needs types; None if that is not known.
    """

    records: int = 0
    fitting: int = 0
    reason: str = ""
    others: dict[str, int] = {}
    columns: frozenset[str] | None = None
    connector: str | None = None
    nulls: frozenset[str] = frozenset()
    defaults: frozenset[str] | None = None
    durations: frozenset[str] = frozenset()
    kinds: dict[str, frozenset[Kind]] = {}
    bytes_of_decimals: frozenset[str] = frozenset()
    key: tuple[str, ...] = ()
    semantics: dict[str, str] | None = None
    key_semantics: dict[str, str] | None = None


def preview(connection: KafkaConnection, spec: FeedSpec, topics: Mapping[str, int]) -> dict[str, Seen]:
    """Topic → what its newest records show; nothing for a change log, whose records are written by Headgate.

    A topic is left out if none of its records was read, because it is empty or was not read in time. ``topics``:
    topic → number of partitions. Raises SourceUnreachableError.
    """
    if spec.source.change_log is not None:
        return {}
    looking = _Looking(spec)
    look_at_newest(connection, topics, looking)
    return looking.seen


def check_formats(spec: FeedSpec, seen: Mapping[str, Seen]) -> tuple[str, ...]:
    """Warnings of topics without a readable record. Raises FormatMismatchError where another format reads them."""
    warnings = []
    for topic, told in sorted(seen.items()):
        if not told.records or told.fitting:
            continue
        said = f"none of the {told.records} newest records of topic {topic} is {spec.source.format}: {told.reason}"
        if told.others:
            best = max(told.others, key=lambda name: told.others[name])
            registry = " and source.registry" if FORMATS[best].needs_registry else ""
            raise FormatMismatchError(f"{said}. They are {best}: set source.format: {best}{registry}")
        warnings.append(f"warning: {said}")
    return tuple(warnings)


class _Looking:
    """Reads records, topic by topic; see newest.Look."""

    def __init__(self, spec: FeedSpec) -> None:
        self._spec = spec
        registry = registry_of(spec.source)
        self._schemas = None if registry is None else registry.schema
        self._decoders: dict[str, Decoder] = {}
        self.seen: dict[str, Seen] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None) -> bool | None:
        """Whether the topic's records have shown enough."""
        seen = self.seen.setdefault(topic, Seen(others={}, kinds={}))
        if value is None:
            return None  # a tombstone is one in every format
        if seen.records >= RECORDS_MAX:
            return True
        try:
            changes = self._decoder(topic).decode_batch([key], [value], [0], [seen.records], [0])
        except UndecodableError as error:
            seen.reason = _shortened(error.__cause__)
            for name in self._formats_of(topic, key, value):
                seen.others[name] = seen.others.get(name, 0) + 1
        except SchemasUnavailableError:
            return None
        else:
            seen.fitting += 1
            for change in changes:
                self._note(seen, change, value)
            if self._spec.sink.needs_types and key is not None:
                self._note_key(seen, topic, key)
        seen.records += 1
        return True if seen.records >= RECORDS_MAX else None

    def _decoder(self, topic: str) -> Decoder:
        # A topic of several tables gets another decoder for each record, because a decoder takes one table's events.
        if topic not in self._decoders or self._spec.source.tables:
            self._decoders[topic] = self._made(self._spec.source.format, topic)
        return self._decoders[topic]

    def _made(self, name: str, topic: str) -> Decoder:
        return format_of(name).decoder(DecoderNeeds(self._spec.source, self._is_keyless(topic), self._schemas))

    def _is_keyless(self, topic: str) -> bool:
        """Whether some table of the topic may be without key."""
        names: Iterable[str | None] = self._spec.source.tables or (None,)
        return any(self._spec.for_table(topic, name).sink.keyless == "append" for name in names)

    def _formats_of(self, topic: str, key: bytes | None, value: bytes) -> Iterable[str]:
        """Other formats that find a change in the record."""
        for name in FORMATS.names():
            with suppress(PlugError, *DATA_ERRORS):
                if name == self._spec.source.format:
                    continue
                if FORMATS[name].needs_registry:
                    is_framed = key is None or (len(key) >= FRAME_BYTES and key[0] == 0)
                    if is_framed and schema_id_of(value, "value") > 0:
                        yield name
                elif self._made(name, topic).decode_batch([key], [value], [0], [0], [0]):
                    yield name

    def _note(self, seen: Seen, change: Change, value: bytes) -> None:
        told = change.semantics or {}
        seen.connector = told.get(CONNECTOR, seen.connector)
        seen.key = tuple(change.key) or seen.key
        if change.row is None:
            return
        seen.semantics = change.semantics
        if LACKING not in told:
            seen.columns = frozenset(change.row)
        with suppress(SchemasUnavailableError, *DATA_ERRORS):
            seen.defaults = self._defaults(value)
        seen.durations = frozenset(column for column, meaning in told.items() if meaning == _DURATION)
        if not is_described(told):
            for column, held in change.row.items():
                kind = read_of_value(column, type(held)).kind
                seen.kinds[column] = seen.kinds.get(column, frozenset()) | ({kind} - {Kind.NULL})
                if isinstance(held, str) and is_bytes(held):
                    seen.bytes_of_decimals |= {column}
        seen.nulls |= {column for column, value in change.row.items() if value is None}

    def _note_key(self, seen: Seen, topic: str, key: bytes) -> None:
        """By a decoder of its own: one that has met a value gives the value's schema to a tombstone behind it."""
        decoder = self._made(self._spec.source.format, topic)
        with suppress(UndecodableError, SchemasUnavailableError):
            for change in decoder.decode_batch([key], [None], [0], [0], [0]):
                seen.key_semantics = change.semantics or {}

    def _defaults(self, value: bytes) -> frozenset[str] | None:
        if self._spec.source.format == "debezium-avro" and self._schemas is not None:
            return avro_columns(self._schemas(schema_id_of(value, "value")))
        return json_columns(value) if self._spec.source.format == "debezium-json" else None


def _shortened(error: BaseException | None) -> str:
    reason = reason_of(error) if isinstance(error, Exception) else "it cannot be decoded"
    return reason if len(reason) <= REASON_CHARACTERS_MAX else f"{reason[:REASON_CHARACTERS_MAX]}…"
