"""Debezium JSON, with and without schema → Change.

A record's key names the row, its value is an envelope ``{"before", "after", "source", "op", …}``; with
``schemas.enable=true`` both are wrapped in ``{"schema": …, "payload": …}``. Only what a
Change needs is built: the rest of the envelope is skipped by the parser.

A large value that an UPDATE left alone is not in PostgreSQL's log; Debezium puts a placeholder in its place, in a
form that fits the column (text, base64, a list of its bytes as numbers, …): each becomes ABSENT. A row that really
holds the placeholder cannot be told apart; it can be changed in connector and feed (``unavailable_value``).

A tombstone (a key without a value) is a delete of its row: in a compacted topic the delete event before it may be gone.
It has no schema of values, so its key means what the columns meant in the last change that was met, or what the key's
own schema defines.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain, compress, repeat
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from headgate.formats.change import (
    CONNECTOR,
    Change,
    ChangeError,
    Operation,
    ReportedTime,
    Row,
    source_time,
    source_times,
)
from headgate.formats.dealing import Whose, named
from headgate.formats.debezium import (
    COMPACTED_AWAY,
    MESSAGE,
    ROW_OPERATIONS,
    TABLE_ADVICE,
    UNAVAILABLE_VALUE,
    Tombstones,
    Unavailable,
    check_key,
    keyless_row,
    operation_of,
    told_of_modes,
)
from headgate.formats.debezium_schema import OPENING, KnownSchemas, with_head
from headgate.formats.decoding import Watermark, decode_columns
from headgate.formats.json_values import PARSE_ERRORS, exact_decoder
from headgate.formats.registry import FormatPlug
from headgate.formats.snapshot_markers import IN_THE_STREAM
from headgate.formats.tables import UNNAMED, OneTable
from headgate.formats.transactions import TransactionRun, transaction_key
from headgate.records.source_tables import SourceTable

__all__ = ["FORMAT", "UNAVAILABLE_VALUE", "DebeziumJsonDecoder", "DebeziumJsonLook"]

_UPSERT: Final = Operation.UPSERT
_DELETE: Final = Operation.DELETE
_WRAPPED: Final = {"schema", "payload"}


class _Source(msgspec.Struct, gc=False):
    ts_ms: ReportedTime = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None


class _Envelope(msgspec.Struct, gc=False):
    op: str
    after: dict[str, object] | None = None
    source: _Source | None = None


class _Writer(msgspec.Struct, gc=False):
    connector: str | None = None


class _Origin(msgspec.Struct, gc=False):
    source: _Writer | None = None


class _SnapshotSource(_Source, gc=False):
    snapshot: str | bool | None = None


class _Transaction(msgspec.Struct, gc=False):
    id: str
    data_collection_order: int


class _Named(msgspec.Struct, gc=False):
    db: str | None = None
    schema: str | None = None
    table: str | None = None


class _Label(msgspec.Struct, gc=False):
    op: str
    source: _Named | None = None


class _TransactionEnvelope(_Envelope, gc=False):
    source: _SnapshotSource | None = None
    transaction: _Transaction | None = None


_plain: Final = exact_decoder(_Envelope)
_label: Final = msgspec.json.Decoder(_Label)
_table_of: Final = attrgetter("db", "schema", "table")
_origin: Final = msgspec.json.Decoder(_Origin)
_with_transaction: Final = exact_decoder(_TransactionEnvelope)
TABLES_MAX: Final = 256
"""Tables for which there is a parser of their own, some 10 kB each."""

CONNECTORS_MAX: Final = 16
"""Connectors remembered: Debezium has about ten."""

_row: Final = exact_decoder(dict[str, object])


def _connector(payload: bytes) -> str | None:
    """Which connector wrote an event; None if the event does not name it."""
    try:
        source = _origin.decode(payload).source
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return None if source is None else source.connector


@lru_cache(maxsize=CONNECTORS_MAX)
def _written_by(connector: str | None, binary: str | None, decimals: str | None) -> dict[str, str] | None:
    """What is known of the columns of an event without schema; one object, so that a batch is seen to be alike."""
    return (({} if connector is None else {CONNECTOR: connector}) | told_of_modes(binary, decimals)) or None


class DebeziumJsonLook:
    """See dealing.Look. Remembers schemas, to leave them out."""

    def __init__(self) -> None:
        self._values = KnownSchemas(envelopes=True)

    def __call__(self, value: bytes) -> SourceTable | Whose:
        """The table that ``source`` names."""
        try:
            label = _label.decode(self._values.split(value)[0] if value.startswith(OPENING) else value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            label = self._second_look(value, error)
        source = label.source
        if source is not None and source.schema and source.table:
            return (source.schema, source.table)
        if label.op == MESSAGE:
            return Whose.NOBODY
        return named(None, None, None) if source is None else named(source.db, source.schema, source.table)

    def _second_look(self, value: bytes, error: Exception) -> _Label:
        try:
            return _label.decode(self._values.split_whole(value)[0])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise ChangeError(f"the value is not a Debezium envelope: {error}") from error


@lru_cache(maxsize=TABLES_MAX)
def _only(table: SourceTable, *, transactions: bool) -> "msgspec.json.Decoder[Any]":
    """A parser of the events of one table, which refuses any other's.

    It compares the name in place in the event. To build the three parts of it in Python, and to compare them
    there, would cost three times as much.
    """
    parts = zip(("db", "schema", "table"), table, strict=True)
    named: list[tuple[str, Any, Any]] = [
        (part, None, None) if name is None else (part, Literal[name], msgspec.NODEFAULT) for part, name in parts
    ]
    fields: list[tuple[str, Any, Any]] = [("ts_ms", ReportedTime, None), *named]
    if transactions:
        fields.append(("snapshot", str | bool | None, None))
    source = msgspec.defstruct("_OneSource", fields, kw_only=True, gc=False)
    base = _TransactionEnvelope if transactions else _Envelope
    envelope = msgspec.defstruct("_OneEnvelope", [("source", source | None, None)], bases=(base,), gc=False)
    return exact_decoder(envelope)


class DebeziumJsonDecoder:
    """Decodes the events of one topic, which carries one table; remembers its schemas. One per thread."""

    def __init__(
        self,
        unavailable_value: str = UNAVAILABLE_VALUE,
        *,
        keyless: bool = False,
        transactions: bool = False,
        binary: str | None = None,
        decimals: str | None = None,
    ) -> None:
        """``keyless``: events without key are rows to be added; what is more than that is refused.

        ``binary``, ``decimals``: the connector's ``binary.handling.mode`` and ``decimal.handling.mode``, if the feed
        defines them. The second one is for events without schemas.

        ``transactions``: which ones the events belong to is remembered for ``take_runs``.
        """
        self._keyless = keyless
        self._transactions = transactions
        self._runs: list[TransactionRun] = []
        self._envelope: msgspec.json.Decoder[Any] = _with_transaction if transactions else _plain
        self.table = OneTable(TABLE_ADVICE)
        self._binary, self._decimals = binary, decimals
        self._keys = KnownSchemas(envelopes=False, told=told_of_modes(binary))
        self._values = KnownSchemas(envelopes=True, told=told_of_modes(binary))
        self._unavailable = Unavailable(unavailable_value)
        self._scalars = self._unavailable.scalars
        self._tombstones = Tombstones(self._tombstone)
        self._semantics: dict[str, str] | None = None
        """Of the last change that was met."""
        self.head: bytes | None = None
        """See decoding.CutDecoder."""

    def decode(
        self, key: bytes | None, value: bytes | None, partition: int, offset: int, append_ms: int
    ) -> Change | None:
        """The change an event stands for, None if it changes nothing (a message). Raises ChangeError."""
        if value is None:
            return self._tombstones.decode(key, partition, offset, append_ms)
        semantics = None
        if value.startswith(OPENING):
            payload, semantics = self._values.split(value)
        else:
            payload = value
        try:
            envelope = self._envelope.decode(payload)
        except PARSE_ERRORS as error:
            envelope, semantics = self._second_look(value, error)
        operation = operation_of(envelope.op)
        source = envelope.source
        if operation is not None and source is not None and (table := _table_of(source)) != UNNAMED:
            self.table.check(table)
        if operation is None:
            return None
        row = self._row(envelope) if operation is _UPSERT else None
        if semantics is None:
            semantics = _written_by(_connector(payload), self._binary, self._decimals)
        self._semantics = semantics
        if operation is Operation.TRUNCATE:
            named: Row = {}
        else:
            named = keyless_row(envelope.op, appended=self._keyless) if key is None else self._key(key)[0]
        if operation is _DELETE:
            self._tombstones.met_delete(key, partition, offset)
        source_ms = self._made_at(source)
        if self._transactions:
            self._remember([envelope], [partition], [offset])
        return Change(
            partition,
            offset,
            operation,
            named,
            row,
            source_ms,
            append_ms,
            semantics,
        )

    def _row(self, envelope: _Envelope) -> Row:
        row = envelope.after
        if row is None:
            raise ChangeError(f"op={envelope.op!r} without a row: 'after' is missing or null")
        try:
            if not self._scalars.isdisjoint(row.values()):
                self._unavailable.mark(row)
        except TypeError:  # a value that is a list or an object
            self._unavailable.mark(row)
        return row

    def decode_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """The changes of a batch given column by column, in its order; UndecodableError names the first bad event."""
        at_once = partial(self._decode_at_once, None)
        return decode_columns(at_once, self.decode, keys, values, partitions, offsets, appended_ms)

    def decode_cut(  # noqa: PLR0917 - one per column
        self,
        head: bytes,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """See decoding.CutDecoder."""

        def decode(
            key: bytes | None, value: bytes | None, partition: int, offset: int, append_ms: int
        ) -> Change | None:
            return self.decode(key, with_head(head, value), partition, offset, append_ms)

        at_once = partial(self._decode_at_once, head)
        return decode_columns(at_once, decode, keys, values, partitions, offsets, appended_ms)

    def take_watermarks(self) -> list[Watermark]:
        """Always empty: an event shows when it happened, not that no earlier one follows."""
        return []

    def take_runs(self) -> list[TransactionRun]:
        """See decoding.TransactionDecoder."""
        runs, self._runs = self._runs, []
        return runs

    def _made_at(self, source: Any) -> int | None:
        """When the change was made. Raises ChangeError where that decides what belongs to a feed's end."""
        told = None if source is None else source.ts_ms
        made_at = source_time(told)
        if self._transactions and made_at != told:
            raise ChangeError(
                f"source.ts_ms is {told}: not a time in milliseconds since 1970, which a feed with a target needs"
            )
        return made_at

    def _remember(
        self, envelopes: Sequence[_TransactionEnvelope], partitions: Sequence[int], offsets: Sequence[int]
    ) -> None:
        """Which transactions changes belong to; what belongs to none, and to no snapshot, ends no run."""
        runs = self._runs
        for envelope, partition, offset in zip(envelopes, partitions, offsets, strict=True):
            first, order, transaction = offset, 0, None
            if envelope.transaction is not None:
                transaction = transaction_key(envelope.transaction.id)
                order = envelope.transaction.data_collection_order
            elif envelope.source is None or envelope.source.snapshot in IN_THE_STREAM:
                continue
            if runs and runs[-1].transaction == transaction and runs[-1].partition == partition:
                first = runs.pop().first
            runs.append(TransactionRun(partition, first, offset, transaction, order))

    def _decode_at_once(  # noqa: PLR0917 - one per column
        self,
        head: bytes | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change] | None:
        """The same column by column, in a third less time; None where any event needs a closer look, or is wrong.

        For whole rows of one table and schema, deletes and tombstones: what a batch is made of, as a rule.
        """
        self.head = None
        everything = (keys, partitions, offsets, appended_ms)
        nulls: list[int] = []
        if None in values:
            there = [value is not None for value in values]
            nulls = [place for place, is_there in enumerate(there) if not is_there]
            columns = (compress(column, there) for column in (keys, values, partitions, offsets, appended_ms))
            keys, values, partitions, offsets, appended_ms = map(list, columns)  # type: ignore[assignment]
        payloads = self._values.cut_all(values, head)
        key_payloads = None if None in keys else self._keys.cut_all(keys)
        if payloads is None or key_payloads is None:
            return None
        decoder = _only(self.table.name or UNNAMED, transactions=self._transactions)
        try:
            envelopes = list(map(decoder.decode, payloads[0]))
            key_rows = list(map(_row.decode, key_payloads[0]))
            operations = [ROW_OPERATIONS[envelope.op] for envelope in envelopes]
            rows = [envelope.after for envelope in envelopes]
            if _DELETE in operations:
                rows = [None if op is _DELETE else row for op, row in zip(operations, rows, strict=True)]
                present = [row for row, op in zip(rows, operations, strict=True) if op is not _DELETE]
            else:
                present = rows
            # TypeError: a row is missing, or has a value that is a list or an object
            is_whole = all(map(self._scalars.isdisjoint, map(dict.values, present)))
            if not is_whole or None in chain.from_iterable(map(dict.values, key_rows)):
                return None
        except (*PARSE_ERRORS, KeyError, TypeError):
            return None
        told_ms = [None if envelope.source is None else envelope.source.ts_ms for envelope in envelopes]
        source_ms = source_times(told_ms)
        is_odd_time = self._transactions and source_ms is not told_ms
        if is_odd_time or any(len(row) == len(_WRAPPED) and row.keys() == _WRAPPED for row in key_rows):
            return None
        semantics, is_of_two = payloads[1], False
        if semantics is None:
            # The first and the last one are asked: by how many connectors a topic has been written, one after the
            # other, is seen by that, and asking every event would cost a fifth of the time it takes to decode it.
            connector = _connector(payloads[0][0]) if envelopes else None
            is_of_two = bool(envelopes) and _connector(payloads[0][-1]) != connector
            semantics = _written_by(connector, self._binary, self._decimals)
        # The meaning of the key of a tombstone in front comes from a change before this batch.
        if is_of_two or (envelopes and 0 in nulls and semantics != self._semantics):
            return None
        self._semantics = semantics if envelopes else self._semantics
        if self._transactions:
            self._remember(envelopes, partitions, offsets)
        meaning = repeat(semantics)
        changes = list(map(Change, partitions, offsets, operations, key_rows, rows, source_ms, appended_ms, meaning))
        merged = self._tombstones.among(changes, nulls, *everything) if nulls else changes
        if changes and operations[-1] is _DELETE:  # its tombstone may begin the next batch
            self._tombstones.met_delete(keys[-1], partitions[-1], offsets[-1])
        self.head = None if payloads[0] is values else self._values.head
        return merged

    def _second_look(self, value: bytes, error: Exception) -> tuple[Any, dict[str, str] | None]:
        """Decode a value that is not a plain envelope: wrapped with a schema in an unusual way of writing, or wrong."""
        payload, semantics = self._values.split_whole(value)
        try:
            return self._envelope.decode(payload), semantics
        except PARSE_ERRORS:
            raise ChangeError(
                f"the value is not a Debezium envelope: {error} (unwrapping transforms are not supported)"
            ) from error

    def _tombstone(self, key: bytes, partition: int, offset: int, append_ms: int) -> Change:
        row, own = self._key(key)
        semantics = self._semantics
        if own is not None and (semantics is None or not row.keys() <= semantics.keys()):
            semantics = own if semantics is None else own | semantics
        return Change(partition, offset, _DELETE, row, None, None, append_ms, semantics)

    def _key(self, key: bytes) -> tuple[Row, dict[str, str] | None]:
        """The row's key and, where it has a schema, what its columns mean."""
        semantics = None
        if key.startswith(OPENING):
            key, semantics = self._keys.split(key)
        try:
            row = _row.decode(key)
            if row.keys() == _WRAPPED:
                key, semantics = self._keys.split_whole(key)
                row = _row.decode(key)
        except PARSE_ERRORS as error:
            raise ChangeError(f"the key is not a JSON object of columns: {error}") from error
        check_key(row)
        return row, semantics


FORMAT: Final = FormatPlug(
    summary="Debezium's events as JSON, with or without schema",
    compacted_away=COMPACTED_AWAY,
    options=frozenset({"binary_handling_mode", "decimal_handling_mode", "transaction_topic"}),
    tells_origin=True,
    tells_types=True,
    has_envelopes=True,
    shapes_envelopes=True,
    decoder=lambda needs: DebeziumJsonDecoder(
        needs.source.unavailable_value,
        keyless=needs.keyless,
        transactions=needs.source.transaction_topic is not None,
        binary=needs.source.binary_handling_mode,
        decimals=needs.source.decimal_handling_mode,
    ),
    look=lambda _: DebeziumJsonLook(),
)
