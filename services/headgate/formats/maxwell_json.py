"""Maxwell's JSON → Change: ``{"database", "table", "type", "data": row, "old": {…}}``, one row of MySQL per message.

What names the row is in the record's key, in either of its forms (``kafka_key_format``): ``{"database", "table",
"pk.<column>": value, …}``, or ``[database, table, [{<column>: value}, …]]``; a table without primary key has a random
``_uuid`` there, and is refused. An update whose ``old`` has key columns is of a row that had another key, which is
deleted first.

Numbers with a point are kept digit by digit, for they may be decimals, within JSON as well. Bytes arrive as base64,
times as text, a set as the list of its labels, which is for the sink's column to understand. A column of JSON is part
of the message's own JSON, so a text there is a JSON string: ``"123"`` is not the number (hence the CONNECTOR). Rows of
a bootstrap are rows like any other; where it begins and ends is skipped, as is DDL.

A tombstone is a delete of the row that its key names. Maxwell writes none by itself: its delete is a message, which
compaction keeps; a client that added one did so under the same key.

With ``output_nulls=false`` Maxwell leaves NULLs out of its rows, and nothing in a message distinguishes such a row from
one of a table that lacks the column. So a feed can declare it (``source.output_nulls``); if not, rows that lack
columns of the sink's table are refused there (LACKING).

Maxwell writes every table to one topic, unless configured otherwise; a topic that carries two is refused.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.formats.change import (
    CONNECTOR,
    LACKING,
    LACKING_NULL,
    LACKING_UNKNOWN,
    Change,
    ChangeError,
    Operation,
    ReportedTime,
    Row,
    source_time,
)
from headgate.formats.connectors import MAXWELL
from headgate.formats.dealing import Whose, named
from headgate.formats.decoding import Watermark, decode_each
from headgate.formats.json_values import PARSE_ERRORS, exact_decoder
from headgate.formats.registry import FormatPlug
from headgate.formats.tables import OneTable, show_table
from headgate.records.source_tables import SourceTable

__all__ = ["FORMAT", "MaxwellDecoder", "look"]

_ROWS: Final = {
    "insert": Operation.UPSERT,
    "update": Operation.UPSERT,
    "delete": Operation.DELETE,
    "bootstrap-insert": Operation.UPSERT,
}
_PASSED_OVER: Final = frozenset(
    {"bootstrap-start", "bootstrap-complete", "heartbeat", "table-create", "table-alter", "table-drop"}
    | {"database-create", "database-alter", "database-drop"}
)
_KEY_COLUMN: Final = "pk."
_NO_KEY: Final = "_uuid"
_MS: Final = 1_000
_MEANINGS: Final[dict[bool | None, dict[str, str]]] = {
    True: {CONNECTOR: MAXWELL},
    False: {CONNECTOR: MAXWELL, LACKING: LACKING_NULL},
    None: {CONNECTOR: MAXWELL, LACKING: LACKING_UNKNOWN},
}
"""By ``source.output_nulls``."""


class _Message(msgspec.Struct, gc=False):
    type: str
    database: str | None = None
    table: str | None = None
    ts: ReportedTime = None
    data: dict[str, Any] | None = None
    old: dict[str, Any] | None = None
    encrypted: Any = None


class _Label(msgspec.Struct, gc=False):
    type: str
    database: str | None = None
    table: str | None = None


_label: Final = msgspec.json.Decoder(_Label)
_message: Final = exact_decoder(_Message)
_key: Final = exact_decoder(object)


def look(value: bytes) -> SourceTable | Whose:
    """See dealing.Look."""
    try:
        label = _label.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ChangeError(f"the value is not a message of Maxwell: {error}") from error
    return Whose.NOBODY if label.type in _PASSED_OVER else named(label.database, None, label.table)


class MaxwellDecoder:
    """Decodes the messages of one topic, which carries one table."""

    def __init__(self, *, keyless: bool = False, output_nulls: bool | None = None) -> None:
        """``keyless``: rows without key are added; any other change of them is refused.

        ``output_nulls``: Maxwell's option of that name, None if the feed does not define it.
        """
        self._keyless = keyless
        self._meaning = _MEANINGS[output_nulls]
        self._output_nulls = output_nulls
        self.table = OneTable("kafka_topic=%{database}.%{table}")
        self._columns: tuple[str, ...] = ()
        """The key's, as the last row spelled them."""

    def decode_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """See decoding.Decoder."""
        return decode_each(self.decode, keys, values, partitions, offsets, appended_ms)

    def take_watermarks(self) -> list[Watermark]:
        """Always empty: an event shows when it happened, not that no earlier one follows."""
        return []

    def decode(
        self, key: bytes | None, value: bytes | None, partition: int, offset: int, append_ms: int
    ) -> list[Change]:
        """The changes of one message, none if it changes no row. Raises ChangeError."""
        if value is None:
            return self._tombstone(key, partition, offset, append_ms)
        try:
            message = _message.decode(value)
        except PARSE_ERRORS as error:
            raise ChangeError(f"the value is not a message of Maxwell: {error}") from error
        if message.type in _PASSED_OVER:
            return []
        operation = _ROWS.get(message.type)
        if operation is None:
            raise ChangeError(f"unknown type {message.type!r} of Maxwell; expected {', '.join(_ROWS)}")
        row = self._row(message)
        names = _key_columns(key)
        if not names:
            if not self._keyless or message.type not in ("insert", "bootstrap-insert"):
                raise ChangeError(_without_key(message.type, keyless=self._keyless))
            named: Row = {}
        else:
            named = _named(names, row, message)
            self._columns = tuple(named)
        source_ms = source_time(message.ts * _MS) if isinstance(message.ts, int) else None
        changes = []
        before = {**named, **{column: old for column, old in (message.old or {}).items() if column in named}}
        if None in before.values():
            raise ChangeError(f"'old' has NULL in the row's key ({', '.join(before)}), which no row can have had")
        if operation is Operation.UPSERT and before != named:
            changes.append(
                Change(partition, offset, Operation.DELETE, before, None, source_ms, append_ms, self._meaning)
            )
        kept = row if operation is Operation.UPSERT else None
        changes.append(Change(partition, offset, operation, named, kept, source_ms, append_ms, self._meaning))
        return changes

    def _tombstone(self, key: bytes | None, partition: int, offset: int, append_ms: int) -> list[Change]:
        pairs = {} if key is None else _key_pairs(key)
        if not pairs:
            return []  # it names no row
        odd = [column for column, each in pairs.items() if not isinstance(each, int | str)]
        if odd:
            raise ChangeError(
                f"a tombstone whose key has {', '.join(odd)}: Maxwell writes such values differently in keys and rows, "
                "so it is not known which row it deletes"
            )
        spelled = {column.lower(): column for column in self._columns}
        named: Row = {spelled.get(column.lower(), column): each for column, each in pairs.items()}
        return [Change(partition, offset, Operation.DELETE, named, None, None, append_ms, self._meaning)]

    def _row(self, message: _Message) -> Row:
        if message.encrypted is not None:
            raise ChangeError("Maxwell has encrypted the row (its option encrypt): that cannot be read")
        if not message.data:
            raise ChangeError(f"type {message.type} without a row: 'data' is missing or empty")
        self.table.check((message.database, message.table))
        lacking = sorted((message.old or {}).keys() - message.data.keys())
        if lacking and self._output_nulls is not False:
            raise ChangeError(
                f"the row lacks {', '.join(lacking)}, although they are in 'old': configure Maxwell to write "
                "NULLs (output_nulls=true) and all columns of the table, or set source.output_nulls: false"
            )
        return message.data


def _key_columns(key: bytes | None) -> list[str]:
    """The columns that the record's key names, none if the table has no primary key."""
    if key is None:
        raise ChangeError("the record has no key: Maxwell names the row's primary key there")
    return list(_key_pairs(key))


def _key_pairs(key: bytes) -> dict[str, Any]:
    """The columns that a record's key names, and their values there; none if the table has no primary key."""
    try:
        parsed: Any = _key.decode(key)
        if isinstance(parsed, dict):
            pairs = {
                name.removeprefix(_KEY_COLUMN): each for name, each in parsed.items() if name.startswith(_KEY_COLUMN)
            }
            if pairs or _NO_KEY in parsed:
                return pairs
        else:
            _, _, listed = parsed
            return {column: each for pair in listed for column, each in pair.items()}
    except (*PARSE_ERRORS, ValueError, TypeError, AttributeError) as error:
        raise ChangeError(f"the key is not one of Maxwell's: {error}") from error
    raise ChangeError('the key is not one of Maxwell\'s: it has no "pk." columns')


def _named(names: Sequence[str], row: Row, message: _Message) -> Row:
    # As in the row, not as in the key: both are of the same event, but Maxwell writes some values differently there.
    by_folded = {column.lower(): column for column in row}  # keys name columns in small letters
    missing = [name for name in names if row.get(by_folded.get(name.lower(), name)) is None]
    if missing:
        raise ChangeError(
            f"the row of {show_table((message.database, message.table))} lacks {', '.join(missing)} of its key"
        )
    return {by_folded[name.lower()]: row[by_folded[name.lower()]] for name in names}


def _without_key(kind: str, *, keyless: bool) -> str:
    if keyless:
        return (
            f"{kind} on a table without primary key: it does not identify a row at the sink; rows of such a "
            "table can only be added (sink.keyless: append)"
        )
    return (
        "the table has no primary key: add one at the source, rows are found by it; or, if rows are only ever added, "
        "set sink.keyless: append"
    )


FORMAT: Final = FormatPlug(
    summary="Maxwell's JSON",
    compacted_away="the delete of a row's old key, where its key was changed and the new row changed again",
    options=frozenset({"output_nulls"}),
    decoder=lambda needs: MaxwellDecoder(keyless=needs.keyless, output_nulls=needs.source.output_nulls),
    look=lambda _: look,
)
