"""Canal-JSON → Change: Alibaba Canal's flat messages, and TiCDC's of the same form with the TiDB extension.

One message holds the rows of one statement: ``{"type", "pkNames", "mysqlType", "data": [row, …], "old": [row, …]}``.
The key of a row is its ``pkNames`` columns; an UPDATE whose ``old`` names another key deletes that one first.

Some writers leave NULLs out of ``data``. A column that ``mysqlType`` has and a row lacks is NULL in an INSERT, and in
an UPDATE if ``old`` has it. If ``old`` does not have it, the update has left the column alone, whatever it holds:
ABSENT.

TiCDC adds ``_tidb`` (``enable-tidb-extension=true`` in its sink URI): the commit ts of every change, and messages
of type TIDB_WATERMARK in every partition, which are this format's evidence of time. They also show what was sent twice:
after a restart TiCDC resumes from its checkpoint, and a change at or below the watermark in front of it has been
received before. (The documentation of TiCDC asks its readers to drop those.)

DDL is not a change of a row and is skipped, whatever table it is of, except TRUNCATE of the topic's table: in the only
partition of a topic it is in order. In one of several it cannot be, because rows of other partitions may be older or
younger; the sink, which knows, refuses it.

What is noticed and refused: a topic that carries two tables, a row without key, a message from which TiCDC left
the row out because of its size (claim check, handle key only).
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from headgate.formats.change import (
    ABSENT,
    BINARY,
    TEXT_ONLY,
    Change,
    ChangeError,
    Operation,
    ReportedTime,
    Row,
    source_time,
)
from headgate.formats.dealing import Whose, named
from headgate.formats.decoding import Watermark, decode_each
from headgate.formats.json_values import PARSE_ERRORS, exact_decoder
from headgate.formats.mysql_types import NotAValueError, reader_of
from headgate.formats.registry import FormatPlug
from headgate.formats.tables import OneTable, show_table
from headgate.records.source_tables import SourceTable
from headgate.records.ts import TS_MAX

__all__ = ["CANAL", "TICDC", "CanalDecoder", "look"]

WATERMARK: Final = "TIDB_WATERMARK"
_TRUNCATE: Final = "TRUNCATE"
_ROWS: Final = {"INSERT": Operation.UPSERT, "UPDATE": Operation.UPSERT, "DELETE": Operation.DELETE}
_PASSED_OVER: Final = frozenset(
    {"QUERY", "CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"}
)
"""Canal's types of messages without rows. With ``isDdl`` any other type is skipped, too, unless it has rows."""
_STATEMENTS: Final = _PASSED_OVER | {_TRUNCATE}
"""Not all writers set ``isDdl`` for them."""

TYPE_SHOWN_MAX: Final = 100
"""Characters of a column's type in an error; the labels of an enum can take a megabyte."""


class _Extension(msgspec.Struct, gc=False):
    commit_ts: int | None = msgspec.field(default=None, name="commitTs")
    watermark_ts: int | None = msgspec.field(default=None, name="watermarkTs")
    only_handle_key: bool = msgspec.field(default=False, name="onlyHandleKey")
    claim_check: str = msgspec.field(default="", name="claimCheckLocation")


class _Message(msgspec.Struct, gc=False):
    type: str
    is_ddl: bool = msgspec.field(default=False, name="isDdl")
    database: str | None = None
    table: str | None = None
    keys: list[str] | None = msgspec.field(default=None, name="pkNames")
    types: dict[str, str] | None = msgspec.field(default=None, name="mysqlType")
    data: list[dict[str, Any]] | None = None
    old: list[dict[str, Any] | None] | None = None
    es: ReportedTime = None
    tidb: _Extension | None = msgspec.field(default=None, name="_tidb")


_MEANING: Final = {BINARY: TEXT_ONLY}

_message: Final = exact_decoder(_Message)


class _Label(msgspec.Struct, gc=False):
    type: str
    is_ddl: bool = msgspec.field(default=False, name="isDdl")
    database: str | None = None
    table: str | None = None


_label: Final = msgspec.json.Decoder(_Label)


def look(value: bytes) -> SourceTable | Whose:
    """See dealing.Look."""
    try:
        label = _label.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ChangeError(f"the value is not a Canal-JSON message: {error}") from error
    if label.type == WATERMARK:
        return Whose.EVERYBODY
    if label.type in _PASSED_OVER or (label.is_ddl and label.type not in _ROWS and label.type != _TRUNCATE):
        return Whose.NOBODY
    return named(label.database, None, label.table)


class CanalDecoder:
    """Decodes the messages of one topic, which carries one table; remembers its newest watermark per partition."""

    def __init__(self, *, tidb: bool, target_ts: int | None = None) -> None:
        """``tidb``: the TiDB extension is required. Changes with a commit ts above ``target_ts`` are left out."""
        self._tidb = tidb
        self._target_ts = target_ts
        self.table = OneTable('TiCDC: a dispatcher with topic = "{schema}_{table}"; Canal: canal.mq.dynamicTopic')
        self._passed: dict[int, Watermark] = {}
        self._met: list[Watermark] = []

    def decode_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """See decoding.Decoder. Keys are not looked at: what a row is found by is in its message."""
        return decode_each(self.decode, keys, values, partitions, offsets, appended_ms)

    def take_watermarks(self) -> list[Watermark]:
        """See decoding.Decoder."""
        met, self._met = self._met, []
        return met

    def decode(
        self, _key: bytes | None, value: bytes | None, partition: int, offset: int, append_ms: int
    ) -> list[Change]:
        """The changes of one message, none if it changes no row. Raises ChangeError."""
        if value is None:
            return []  # of no row: what a message is about is in its value, its deletes too, and its writers write none
        try:
            message = _message.decode(value)
        except PARSE_ERRORS as error:
            raise ChangeError(f"the value is not a Canal-JSON message: {error}") from error
        if message.type == WATERMARK:
            self._pass(message, partition, offset)
            return []
        operation = _ROWS.get(message.type)
        if message.type in _STATEMENTS or (message.is_ddl and operation is None):
            return self._statement(message, partition, offset, append_ms)
        if message.is_ddl:
            raise ChangeError(
                f"type {message.type} with isDdl: true, so it is not known whether the message has rows: a statement "
                "has another type, such as ALTER, and rows have isDdl: false"
            )
        if operation is None:
            raise ChangeError(f"unknown Canal-JSON type {message.type!r}; expected {', '.join(_ROWS)}, {WATERMARK}")
        if not self._is_new(message, partition, offset):
            return []
        self._check(message)
        changes: list[Change] = []
        for number, data in enumerate(message.data or ()):
            row = _read(message, data)
            key = _key_of(message, row)
            if message.type == "UPDATE":
                replaced = self._replaced(message, number, key)
                if replaced is not None:
                    changes.append(_change(message, Operation.DELETE, replaced, None, (partition, offset, append_ms)))
            is_kept = operation is Operation.UPSERT
            if is_kept and message.types is not None and (lacking := message.types.keys() - row.keys()):
                row |= _left_out(message, number, lacking)
            changes.append(_change(message, operation, key, row if is_kept else None, (partition, offset, append_ms)))
        return changes

    def _pass(self, message: _Message, partition: int, offset: int) -> None:
        ts = None if message.tidb is None else message.tidb.watermark_ts
        if ts is None:
            raise ChangeError(f"a {WATERMARK} without _tidb.watermarkTs")
        _check_ts("_tidb.watermarkTs", ts)
        if not self._tidb:
            return  # the feed's format does not claim any evidence
        passed = self._passed.get(partition)
        mark = Watermark(partition, offset, ts)
        if passed is None or passed.offset >= offset or passed.ts < ts:
            self._passed[partition] = mark
            self._met.append(mark)

    def _is_new(self, message: _Message, partition: int, offset: int) -> bool:
        """Whether the changes must be applied: they were neither sent a second time, nor beyond the target."""
        commit_ts = None if message.tidb is None else message.tidb.commit_ts
        if commit_ts is None:
            if self._tidb:
                raise ChangeError(
                    "no _tidb.commitTs: add enable-tidb-extension=true to the sink URI of the TiCDC changefeed, or "
                    "set source.format: canal-json, which gives no resolved_ts"
                )
            return True
        _check_ts("_tidb.commitTs", commit_ts)
        if self._target_ts is not None and commit_ts > self._target_ts:
            return False
        passed = self._passed.get(partition)
        return passed is None or offset < passed.offset or commit_ts > passed.ts

    def _check(self, message: _Message) -> None:
        if message.tidb is not None and (message.tidb.only_handle_key or message.tidb.claim_check):
            raise ChangeError(
                "TiCDC has left the row out because of its size (large-message-handle-option): raise max-message-bytes "
                "of topic and changefeed, and set the option to none"
            )
        if not message.data:
            raise ChangeError(f"type {message.type} without rows: 'data' is missing or empty")
        self.table.check((message.database, message.table))

    def _replaced(self, message: _Message, number: int, key: Row) -> Row | None:
        """The key that the row had before, if it was another."""
        old = message.old[number] if message.old is not None and number < len(message.old) else None
        if not old or old.keys().isdisjoint(key):
            return None
        before = _read(message, {column: old[column] for column in key if column in old})
        replaced = {**key, **before}
        if None in replaced.values():
            raise ChangeError(f"'old' has NULL in the row's key ({', '.join(replaced)}), which no row can have had")
        return replaced if replaced != key else None

    def _statement(self, message: _Message, partition: int, offset: int, append_ms: int) -> list[Change]:
        if message.type != _TRUNCATE or not self._is_new(message, partition, offset):
            return []
        table = (message.database, message.table)
        if self.table.name is not None and _folded(table) != _folded(self.table.name):
            return []  # statements on other tables may come with the topic's table
        self.table.check(table)
        return [_change(message, Operation.TRUNCATE, {}, None, (partition, offset, append_ms))]


def _folded(table: SourceTable) -> SourceTable:
    """The name as servers compare it that ignore case: a statement may be spelled otherwise than its table."""
    return tuple(None if part is None else part.casefold() for part in table)


def _left_out(message: _Message, number: int, columns: Collection[str]) -> Row:
    """What ``columns`` hold, which the row lacks. Raises ChangeError if the message does not show it."""
    if message.type == "INSERT":
        return dict.fromkeys(columns)
    old = message.old[number] if message.old is not None and number < len(message.old) else None
    if old is None:
        raise ChangeError(
            f"the row lacks {', '.join(sorted(columns))}, and without 'old' it is not known whether they "
            "became NULL or did not change: configure the writer to send all columns, with NULLs"
        )
    return {column: None if column in old else ABSENT for column in columns}


def _change(message: _Message, operation: Operation, key: Row, row: Row | None, place: tuple[int, int, int]) -> Change:
    partition, offset, append_ms = place
    return Change(partition, offset, operation, key, row, source_time(message.es), append_ms, _MEANING)


def _read(message: _Message, data: dict[str, Any]) -> Row:
    row: Row = {}
    types = message.types or {}
    for column, value in data.items():
        try:
            reader = reader_of(types[column]) if isinstance(value, str) and column in types else None
            row[column] = value if reader is None else reader(value)
        except NotAValueError as error:
            raise ChangeError(f"column {column} ({types[column][:TYPE_SHOWN_MAX]}): {error}") from error
    return row


def _key_of(message: _Message, row: Row) -> Row:
    if not message.keys:
        raise ChangeError(
            f"table {show_table((message.database, message.table))} has no primary key (pkNames is empty): add one at "
            "the source, rows are found by it"
        )
    missing = [column for column in message.keys if row.get(column) is None]
    if missing:
        raise ChangeError(f"the row lacks {', '.join(missing)} of its key ({', '.join(message.keys)})")
    return {column: row[column] for column in message.keys}


def _check_ts(name: str, ts: int) -> None:
    """Check a ts. It is not clamped, because it is evidence for every change before it. Raises ChangeError."""
    if not 0 <= ts <= TS_MAX:
        raise ChangeError(f"{name} is {ts}: no ts, which has 63 bits (milliseconds since 1970 << 18)")


_COMPACTED_AWAY: Final = (
    "changes of other rows of a message that a newer message of its key has replaced, for a message holds the rows of "
    "a statement"
)

CANAL: Final = FormatPlug(
    summary="Canal's JSON",
    compacted_away=_COMPACTED_AWAY,
    decoder=lambda needs: CanalDecoder(tidb=False, target_ts=needs.source.target_ts),
    look=lambda _: look,
)

TICDC: Final = FormatPlug(
    summary="TiCDC's canal-json with the TiDB extension",
    compacted_away=_COMPACTED_AWAY,
    gives_resolved_ts=True,
    decoder=lambda needs: CanalDecoder(tidb=True, target_ts=needs.source.target_ts),
    look=lambda _: look,
)
