"""Debezium JSON, with and without schema → Change.

A record's key names the row, its value is an envelope ``{"before", "after", "source", "op", …}``; with
``schemas.enable=true`` both are wrapped in ``{"schema": …, "payload": …}`` (anchors/capture-chain.md §5). Only what a
Change needs is built: the rest of the envelope is skipped by the parser.

A large value that an UPDATE left alone is not in PostgreSQL's log; Debezium puts a placeholder in its place, in a
form that fits the column (text, base64, a list of its bytes as numbers, …): each becomes ABSENT. A row that really
holds the placeholder cannot be told apart; it can be changed in connector and feed (``unavailable_value``).
"""

import hashlib
import uuid
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.changes.change import ABSENT, Change, ChangeError, Operation, Row
from headgate.changes.debezium_schema import KnownSchemas

__all__ = ["UNAVAILABLE_VALUE", "Decoder", "UndecodableError"]

UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""Debezium's default for ``unavailable.value.placeholder``."""

_OPERATIONS: Final = {
    "c": Operation.UPSERT,
    "r": Operation.UPSERT,
    "u": Operation.UPSERT,
    "d": Operation.DELETE,
    "t": Operation.TRUNCATE,
}
_MESSAGE: Final = "m"
"""A logical decoding message (pg_logical_emit_message): no change of any row."""


class _Source(msgspec.Struct):
    ts_ms: int | None = None


class _Envelope(msgspec.Struct):
    op: str
    after: dict[str, object] | None = None
    source: _Source | None = None


_envelope: Final = msgspec.json.Decoder(_Envelope)
_row: Final = msgspec.json.Decoder(dict[str, object])


class UndecodableError(ChangeError):
    """One event of a batch cannot be decoded: its place, why, and the changes before it."""

    def __init__(self, partition: int, offset: int, reason: str, decoded: list[Change]) -> None:
        super().__init__(f"partition {partition}, offset {offset}: {reason}")
        self.partition = partition
        self.offset = offset
        self.decoded = decoded


class Decoder:
    """Decodes the events of any number of tables; remembers their schemas. One per thread."""

    def __init__(self, unavailable_value: str = UNAVAILABLE_VALUE) -> None:
        self._keys = KnownSchemas(envelopes=False)
        self._values = KnownSchemas(envelopes=True)
        raw = unavailable_value.encode()
        numbers = [byte if byte < 128 else byte - 256 for byte in raw]  # Java's bytes are signed
        base64 = b64encode(raw).decode()
        named = str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))
        hstore = {unavailable_value: unavailable_value}
        scalars = [unavailable_value, base64, msgspec.json.encode(hstore).decode()]
        self._placeholders = (*scalars, hstore, numbers, [unavailable_value], [base64], [named])
        self._needles = tuple(
            msgspec.json.encode(value)[1:-1] for value in (unavailable_value, base64, numbers, named) if raw
        )

    def decode(
        self, key: bytes | None, value: bytes | None, partition: int, offset: int, append_ms: int
    ) -> Change | None:
        """The change an event stands for, None if it changes nothing (a tombstone, a message). Raises ChangeError."""
        if value is None:
            return None
        payload, semantics = self._values.split(value)
        try:
            envelope = _envelope.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ChangeError(
                f"the value is not a Debezium envelope: {error} (unwrapping transforms are not supported)"
            ) from error
        operation = _OPERATIONS.get(envelope.op)
        if operation is None:
            if envelope.op == _MESSAGE:
                return None
            raise ChangeError(f"unknown Debezium operation op={envelope.op!r}; known are c, r, u, d, t, m")
        source = envelope.source
        row = None
        if operation is Operation.UPSERT:
            row = envelope.after
            if row is None:
                raise ChangeError(f"op={envelope.op!r} without a row: 'after' is missing or null")
            for needle in self._needles:
                if needle in payload:
                    self._mark_absent(row)
                    break
        return Change(
            partition,
            offset,
            operation,
            {} if operation is Operation.TRUNCATE else self._key(key),
            row,
            None if source is None else source.ts_ms,
            append_ms,
            semantics,
        )

    def decode_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """The changes of a batch given column by column, in its order; UndecodableError names the first bad event."""
        decode = self.decode
        changes: list[Change] = []
        add = changes.append
        partition = offset = -1
        try:
            for key, value, partition, offset, append_ms in zip(
                keys, values, partitions, offsets, appended_ms, strict=True
            ):
                change = decode(key, value, partition, offset, append_ms)
                if change is not None:
                    add(change)
        except ChangeError as error:
            raise UndecodableError(partition, offset, str(error), changes) from error
        return changes

    def _key(self, key: bytes | None) -> Row:
        if key is None:
            raise ChangeError(
                "the event has no key: its source table has no primary key; "
                "add one, or choose columns with the connector's message.key.columns"
            )
        payload, _ = self._keys.split(key)
        try:
            return _row.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ChangeError(f"the key is not a JSON object of columns: {error}") from error

    def _mark_absent(self, row: Row) -> None:
        for column, value in row.items():
            if value in self._placeholders:
                row[column] = ABSENT
