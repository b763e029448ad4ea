"""The meaning of Debezium's events in every encoding: operations, rows without a key, values that were not sent."""

import hashlib
import re
import uuid
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headgate.formats.change import ABSENT, BINARY, CONNECTOR, DECIMALS, Change, ChangeError, Operation, Row

UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""Debezium's default for ``unavailable.value.placeholder``."""

OPERATIONS: Final = {
    "c": Operation.UPSERT,
    "r": Operation.UPSERT,
    "u": Operation.UPSERT,
    "d": Operation.DELETE,
    "t": Operation.TRUNCATE,
}
ROW_OPERATIONS: Final = {op: what for op, what in OPERATIONS.items() if what is not Operation.TRUNCATE}
TABLE_ADVICE: Final = "as the connector does, unless a transform like ByLogicalTableRouter puts several into one"
_SOURCE: Final = re.compile(r"io\.debezium\.connector\.(\w+)\.Source")
_ADDING: Final = frozenset({"c", "r"})
MESSAGE: Final = "m"
"""A logical decoding message (pg_logical_emit_message): no change of any row."""


def operation_of(op: object) -> Operation | None:
    """What is done to the row, None if nothing (a message). Raises ChangeError."""
    operation = OPERATIONS.get(op) if isinstance(op, str) else None
    if operation is None and op != MESSAGE:
        raise ChangeError(f"unknown Debezium operation op={op!r}; expected c, r, u, d, t, m")
    return operation


def keyless_row(op: str, *, appended: bool) -> Row:
    """The key of an event that has none: nothing, where rows are only ever added. Raises ChangeError."""
    if appended and op in _ADDING:
        return {}
    if appended:
        raise ChangeError(
            f"op={op!r} on a table without key: it does not identify a row at the sink; rows of such a table "
            "can only be added (sink.keyless: append)"
        )
    raise ChangeError(
        "the event has no key: its source table has no primary key; add one, or choose columns with the "
        "connector's message.key.columns, or, if rows are only ever added, set sink.keyless: append"
    )


def check_key(key: Row) -> None:
    """Raise ChangeError for a key with NULL: no row of a table has it, so a delete would silently delete nothing."""
    if None in key.values():
        nulls = ", ".join(column for column, value in key.items() if value is None)
        raise ChangeError(
            f"the event's key has NULL in {nulls}, so it does not identify a row: choose columns that are never NULL "
            "with the connector's message.key.columns. For deletes, also set REPLICA IDENTITY FULL at the source, "
            "because its log has only the replica identity's columns of a deleted row"
        )


def told_of_modes(binary: str | None, decimals: str | None = None) -> dict[str, str]:
    """What semantics have of the connector's ``binary.handling.mode`` and ``decimal.handling.mode``, if known."""
    return ({} if binary is None else {BINARY: binary}) | ({} if decimals is None else {DECIMALS: decimals})


def connector_named(source_schema: object) -> dict[str, str]:
    """What semantics have of the connector, from the name of a schema's ``source`` part; nothing if it has none."""
    match = _SOURCE.fullmatch(source_schema) if isinstance(source_schema, str) else None
    return {} if match is None else {CONNECTOR: match[1]}


class Tombstones:
    """Tombstones (a key, no value) as deletes of their rows, which need not be there.

    In a compacted topic the delete before one may be gone. Directly behind the delete that it repeats, as connectors
    write them, it would add nothing new and becomes nothing, so that ordinary deletes cost what they did. ``decode``:
    (key, partition, offset, append_ms) → the change.
    """

    def __init__(self, decode: Callable[[bytes, int, int, int], Change]) -> None:
        self._decode = decode
        self._repeated: tuple[int, int, bytes | None] | None = None

    def met_delete(self, key: bytes | None, partition: int, offset: int) -> None:
        """The last event that was decoded is a delete."""
        self._repeated = (partition, offset + 1, key)

    def decode(self, key: bytes | None, partition: int, offset: int, append_ms: int) -> Change | None:
        """None where no row is named, or nothing is new. Raises ChangeError."""
        if key is None or (partition, offset, key) == self._repeated:
            return None
        return self._decode(key, partition, offset, append_ms)

    def among(  # noqa: PLR0917 - one per column
        self,
        changes: Sequence[Change],
        nulls: Sequence[int],
        keys: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """``changes`` of the events with a value, and those of the tombstones, whose places are ``nulls``."""
        merged: list[Change] = []
        done = 0
        for number, place in enumerate(nulls):
            end = place - number
            if end and (before := changes[end - 1]).operation is Operation.DELETE:
                self.met_delete(keys[place - 1], before.partition, before.offset)
            change = self.decode(keys[place], partitions[place], offsets[place], appended_ms[place])
            if change is not None:
                merged += changes[done:end]
                merged.append(change)
                done = end
        return [*merged, *changes[done:]]


class Unavailable:
    """Knows Debezium's placeholder in every form that it has, for a text, for bytes, for a list of numbers and others.

    ``scalars`` are those that are hashable: a row without any of them and without lists and objects is whole.
    """

    def __init__(self, placeholder: str) -> None:
        raw = placeholder.encode()
        numbers = [byte if byte < 128 else byte - 256 for byte in raw]  # Java's bytes are signed
        base64 = b64encode(raw).decode()
        named = str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))
        hstore = {placeholder: placeholder}
        self.scalars: frozenset[object] = frozenset(
            {placeholder, base64, urlsafe_b64encode(raw).decode(), raw.hex(), raw}  # (Avro has bytes as they are)
            | {msgspec.json.encode(hstore).decode()}
        )
        self._collections: tuple[object, ...] = (hstore, numbers, [placeholder], [base64], [raw], [named])

    def mark(self, row: Row) -> None:
        """Put ABSENT in the place of every placeholder."""
        for column, value in row.items():
            if value in self.scalars if isinstance(value, str | bytes) else value in self._collections:
                row[column] = ABSENT


COMPACTED_AWAY: Final = (
    "a large column's value, where a later update of the row left it out (unavailable.value.placeholder): the sink "
    "keeps an older value, or the table stops; deletes, for who is behind by more than the topic's delete.retention.ms"
)
"""See FormatTraits."""
