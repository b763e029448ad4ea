"""The interface of decoders: bytes of one topic in; changes and, in some formats, evidence of time out.

A *watermark* is a source's statement, in the log itself, that all changes of the partition up to its ts precede it.
Only such a statement supports a ``resolved_ts``; a format without it never reports one. Where the statement is on
another topic (transactions.py), a decoder reports which transactions it has met.

Whatever one event does to a decoder is that event's trouble, never its table's or lane's: what data can make code raise
is listed in ``change.DATA_ERRORS``, and becomes an UndecodableError here, so that no format can forget one of them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from headgate.formats.change import DATA_ERRORS, Change, ChangeError, reason_of
from headgate.formats.tables import OneTable
from headgate.formats.transactions import TransactionRun


class Watermark(msgspec.Struct, frozen=True):
    """At ``offset`` of ``partition`` the source states: nothing at or below ``ts`` follows that has not been before."""

    partition: int
    offset: int
    ts: int


class UndecodableError(ChangeError):
    """One event of a batch cannot be decoded: its place, why, and the changes before it."""

    def __init__(self, partition: int, offset: int, reason: str, decoded: list[Change]) -> None:
        super().__init__(f"partition {partition}, offset {offset}: {reason}")
        self.partition = partition
        self.offset = offset
        self.decoded = decoded


class SchemasUnavailableError(Exception):
    """A schema that events refer to is unavailable for now. The events are not at fault, and wait."""

    code = "registry_unavailable"
    retryable = True


class Decoder(Protocol):
    """Decodes the events of one topic. One per thread: it remembers what it has met (schemas, watermarks)."""

    table: OneTable
    """The topic's table, whose name the caller may know already."""

    def decode_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """The changes of a batch given column by column, in its order; UndecodableError names the first bad event.

        SchemasUnavailableError: none of the batch, for now.
        """
        ...

    def take_watermarks(self) -> list[Watermark]:
        """The watermarks met since the last call, in the order of the log per partition."""
        ...


@runtime_checkable
class CutDecoder(Protocol):
    """A decoder of a format whose values repeat a schema, byte for byte, in front of their payload: their head."""

    head: bytes | None
    """What all values of the last batch began with; None if they did not, or if it was cut off before."""

    def decode_cut(  # noqa: PLR0917 - one per column, as in Decoder.decode_batch
        self,
        head: bytes,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partitions: Sequence[int],
        offsets: Sequence[int],
        appended_ms: Sequence[int],
    ) -> list[Change]:
        """``Decoder.decode_batch`` of values of which only the payloads are left."""
        ...


@runtime_checkable
class TransactionDecoder(Protocol):
    """A decoder of a format whose changes name their transactions."""

    def take_runs(self) -> list[TransactionRun]:
        """The transactions met since the last call, in the order of the log; none unless the feed asks for them."""
        ...


def decode_each(  # noqa: PLR0917 - one per column, as in Decoder.decode_batch
    decode: Callable[[bytes | None, bytes | None, int, int, int], Sequence[Change]],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    partitions: Sequence[int],
    offsets: Sequence[int],
    appended_ms: Sequence[int],
) -> list[Change]:
    """``Decoder.decode_batch`` for a format of which one event may hold several changes, or none."""
    changes: list[Change] = []
    for key, value, partition, offset, append_ms in zip(keys, values, partitions, offsets, appended_ms, strict=True):
        try:
            changes += decode(key, value, partition, offset, append_ms)
        except DATA_ERRORS as error:
            raise UndecodableError(partition, offset, reason_of(error), changes) from error
    return changes


def decode_singly(  # noqa: PLR0917 - one per column, as in Decoder.decode_batch
    decode: Callable[[bytes | None, bytes | None, int, int, int], Change | None],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    partitions: Sequence[int],
    offsets: Sequence[int],
    appended_ms: Sequence[int],
) -> list[Change]:
    """``Decoder.decode_batch`` for a format of which one event holds one change, or none."""

    def listed(key: bytes | None, value: bytes | None, partition: int, offset: int, append_ms: int) -> Sequence[Change]:
        change = decode(key, value, partition, offset, append_ms)
        return () if change is None else (change,)

    return decode_each(listed, keys, values, partitions, offsets, appended_ms)


def decode_columns(  # noqa: PLR0917 - one per column, as in Decoder.decode_batch
    at_once: Callable[..., list[Change] | None],
    decode: Callable[[bytes | None, bytes | None, int, int, int], Change | None],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    partitions: Sequence[int],
    offsets: Sequence[int],
    appended_ms: Sequence[int],
) -> list[Change]:
    """``Decoder.decode_batch`` for a format that can decode ordinary batches faster than event by event.

    ``at_once`` gives the changes of all events, or gives up: None, or any of DATA_ERRORS.
    """
    try:
        changes = at_once(keys, values, partitions, offsets, appended_ms)
    except DATA_ERRORS:
        changes = None
    return decode_singly(decode, keys, values, partitions, offsets, appended_ms) if changes is None else changes
