"""Debezium's transaction records: up to which commit a table is complete (``provide.transaction.metadata=true``).

The connector writes ``{"status": "END", "id", "ts_ms", "data_collections": [{"data_collection", "event_count"}, …]}``
to a topic of its own when a transaction is over, in commit order, and ``{"id", "data_collection_order"}`` into each
change: the how-manieth of its table in the transaction. END may reach the log before changes that it counts, and
proves nothing alone. In a topic of one partition the changes of a table are in commit order, too; so, with the last
change applied (its *tail*, transaction and number):

- all that a transaction whose END precedes the tail's own END has changed is applied;
- the tail's transaction is, once the tail's number is END's count;
- one that has not touched the table is, if those before it are.

This holds for a table whose initial snapshot is behind it: rows of a snapshot belong to no transaction.

The *time* of a transaction is the latest ``ts_ms`` of its END and those before it: commit order decides, for clocks
step back, and MySQL stamps a commit with the time its last statement began. Complete up to a ts is a table of which
everything is applied that was committed before the first transaction with a later time.

A PostgreSQL id is ``<xid>:<LSN>``, and the LSN is another one in BEGIN, in each change and in END; the xid is meant
(as Debezium 3.6 was seen to write them).
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from headgate.formats.change import DATA_ERRORS, ChangeError, reason_of, source_time
from headgate.formats.snapshot_markers import LAST_OF_TABLE
from headgate.formats.topic_names import topic_part
from headgate.records.source_tables import Tail

__all__ = [
    "End",
    "TableEvidence",
    "TransactionProgress",
    "TransactionRun",
    "decode_end",
    "standing_of",
    "transaction_key",
]

T = TypeVar("T")

_POSTGRES_ID: Final = re.compile(r"\d+:\d+")


class TransactionProgress(msgspec.Struct, frozen=True):
    """How far a table is. ``is_whole``: the snapshot that its changes begin with lies behind it."""

    tail: Tail | None = None
    is_whole: bool = False


class TransactionRun(msgspec.Struct, frozen=True):
    """Changes of one transaction that follow each other, offsets ``first`` to ``last``; ``order`` is the last one's.

    ``transaction`` is None for rows of a snapshot of the whole table, which belong to none.
    """

    partition: int
    first: int
    last: int
    transaction: str | None
    order: int


class End(msgspec.Struct, frozen=True):
    """The end of a transaction: ``counts`` of its changes, by what Debezium calls the table behind its topic prefix."""

    transaction: str
    ts_ms: int
    counts: Mapping[str, int]


class _Collection(msgspec.Struct, gc=False):
    data_collection: str
    event_count: int


class _Record(msgspec.Struct, gc=False):
    status: str
    id: str
    ts_ms: int
    data_collections: list[_Collection] | None = None


class _Wrapped(msgspec.Struct, gc=False):
    payload: msgspec.Raw


class _Transaction(msgspec.Struct, gc=False):
    id: str
    data_collection_order: int


class _Source(msgspec.Struct, gc=False):
    snapshot: str | bool | None = None


class _Change(msgspec.Struct, gc=False):
    op: str
    source: _Source | None = None
    transaction: _Transaction | None = None


_record: Final = msgspec.json.Decoder(_Record)
_change: Final = msgspec.json.Decoder(_Change)
_wrapped: Final = msgspec.json.Decoder(_Wrapped)


def transaction_key(given: str) -> str:
    """What of a transaction's id is the same in its changes and its END."""
    return given.partition(":")[0] if _POSTGRES_ID.fullmatch(given) else given


def decode_end(value: bytes | None) -> End | None:
    """The END that a record of the transaction topic is, None for a BEGIN. Raises ChangeError for what is neither."""
    try:
        record = _decoded(_record, value or b"")
    except DATA_ERRORS as error:
        raise ChangeError(f"no transaction record of Debezium: {reason_of(error)}") from error
    if record.status == "BEGIN":
        return None
    if record.status != "END":
        raise ChangeError(f"a transaction record with status {record.status!r}; expected BEGIN or END")
    if source_time(record.ts_ms) is None:
        raise ChangeError(f"the END of {record.id!r} has ts_ms {record.ts_ms}: no time in milliseconds since 1970")
    counts: dict[str, int] = {}
    for each in record.data_collections or ():
        if each.event_count < 0:
            raise ChangeError(f"the END of {record.id!r} counts {each.event_count} changes of {each.data_collection!r}")
        name = topic_part(each.data_collection)
        counts[name] = counts.get(name, 0) + each.event_count
    return End(transaction_key(record.id), record.ts_ms, counts)


def standing_of(value: bytes | None) -> TransactionProgress | None:
    """The position that a record of a table's topic shows; None if it is not a change (a tombstone)."""
    try:
        change = _decoded(_change, value or b"")
    except DATA_ERRORS:
        return None
    if change.transaction is None:
        return TransactionProgress(None, change.source is not None and change.source.snapshot in LAST_OF_TABLE)
    return TransactionProgress(
        Tail(transaction_key(change.transaction.id), change.transaction.data_collection_order), True
    )


def _decoded(decoder: "msgspec.json.Decoder[T]", value: bytes) -> T:
    """With and without ``{"schema", "payload"}`` around it."""
    try:
        return decoder.decode(value)
    except msgspec.ValidationError:
        return decoder.decode(_wrapped.decode(value).payload)


class TableEvidence:
    """Which transactions a table is still waiting for. Both logs are fed in as they come: ENDs, and how far it is."""

    def __init__(self, tail: Tail | None) -> None:
        """``tail``: what is applied already; None if that is not known, or nothing is."""
        self._tail = tail
        self._waiting: deque[tuple[str, int, int]] = deque()
        """(transaction, its time in ms, changes of the table), in commit order; none of them is known to be applied."""
        self._passed = 0
        self._places: dict[str, int] = {}
        """Transaction → its place among all ENDs received; one that was received again (a connector that restarted)
        has the later place: its changes, too, come again."""

    def __len__(self) -> int:
        return len(self._waiting)

    def ended(self, transaction: str, time_ms: int, count: int) -> None:
        """The next END of the log that counts changes of the table."""
        self._waiting.append((transaction, time_ms, count))
        self._places[transaction] = self._passed + len(self._waiting) - 1
        self._settle()

    def reached(self, tail: Tail) -> None:
        """The table is applied up to here."""
        self._tail = tail
        self._settle()

    @property
    def waits_for_ms(self) -> int | None:
        """The time of the first transaction that may not be applied; None if all received ones are."""
        return self._waiting[0][1] if self._waiting else None

    def _settle(self) -> None:
        place = None if self._tail is None else self._places.get(self._tail.transaction)
        if place is None or self._tail is None:
            return
        while self._passed < place:
            self._pass()
        if self._tail.order >= self._waiting[0][2]:
            self._pass()

    def _pass(self) -> None:
        transaction, _, _ = self._waiting.popleft()
        if self._places[transaction] == self._passed:
            del self._places[transaction]
        self._passed += 1
