"""Tables of a lake as the target of a comparison: each is read at its newest commit, from the files that may have rows.

The texts are Headgate's own (lake_texts.py), and so are their checksums: a lake computes nothing.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from headgate.eventlog.clock import wall_ms
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim, FeedIdentity, SinkError
from headgate.sinks.lake.reading import bounds_of, in_range
from headgate.sinks.lake.shape import KEY
from headgate.sinks.lake.tables import Lake, ValueBounds, VersionedTable, position_key
from headgate.verify.contract import (
    WHOLE,
    Checksum,
    ComparedShape,
    KeyKind,
    KeyRange,
    KeySet,
    Part,
    Row,
    SideError,
    UncomparableError,
)
from headgate.verify.lake_texts import nature_of, texts_of
from headgate.verify.spilling import sorted_rows

__all__ = ["LakeSide"]

_SUM_DIGITS: Final = 15
"""60 bits, in hex."""


class LakeSide:
    """See Side. It is never the source of a comparison."""

    kind = "lake"

    def __init__(self, lake: Lake, where: str) -> None:
        """``where``: the sink's address, for people."""
        self._lake = lake
        self.name = f"{lake.kind} tables at {where}"
        self._pinned: dict[str, VersionedTable] | None = None

    def shape(self, table: str) -> ComparedShape | None:
        """See Side."""
        with self._reading():
            found = self._lake.table(table)
            if found is None:
                return None
            if not found.key:
                raise UncomparableError(
                    f"{self.name}: table {table} does not declare the columns of its key. Set the table property {KEY} "
                    'to them, such as ["id"]'
                )
            types = {field.name: field.type for field in found.schema}
        kinds = {name: kind for name, type_ in types.items() if (kind := _key_kind(type_)) is not None}
        return ComparedShape({name: nature_of(type_) for name, type_ in types.items()}, found.key, kinds, found.types)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See Side. Each table is read at the commit that is its newest one when it is first read."""
        self._pinned = {}
        try:
            yield
        finally:
            self._pinned = None

    def rows(self, table: str, key: Sequence[str], values: Sequence[str], part: Part = WHOLE) -> Iterator[Row]:
        """See Side."""
        yield from sorted_rows(self._rows(table, key, values, part), len(key))

    def checksum(self, table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        """See Side."""
        rows = total = 0
        for row in self._rows(table, columns, (), part):
            text = "".join("N" if value is None else f"{len(value)}:{value}" for value in row)
            total += int(hashlib.sha256(text.encode()).hexdigest()[:_SUM_DIGITS], 16)
            rows += 1
        return Checksum(rows, total)

    def next_bound(
        self,
        table: str,
        columns: Sequence[str],  # noqa: ARG002
        above: tuple[Any, ...] | None,  # noqa: ARG002
        rows: int,  # noqa: ARG002
    ) -> tuple[Any, ...] | None:
        """See Side. Ranges are the source's."""
        raise SideError(f"{self.name}: a lake cannot be the source of a comparison ({table})")

    def applied(self, feed_id: str, table: str) -> Positions:
        """See Side."""
        with self._reading():
            found, holdings = self._lake.table(table), self._lake.ledger(table).read()[1]
            positions: dict[int, int] = {}
            for each in holdings.all:
                if each.feed_id != feed_id:
                    continue
                identity = FeedIdentity(each.cluster, each.feed_id, each.feed)
                claim = Claim(identity, table, each.topic, Epoch(0, 0), 0, {})
                for partition, row in each.rows.items():
                    at = None if found is None else found.transaction(position_key(claim, row.incarnation, partition))
                    positions[partition] = row.start if at is None else at
            return positions

    def clock_ms(self) -> int:
        """See Side."""
        return wall_ms()

    def why_log_unread(self) -> str:
        """See Side."""
        return ""

    def close(self) -> None:
        """See Side. It has no connections."""

    def _rows(self, table: str, key: Sequence[str], values: Sequence[str], part: Part) -> Iterator[Row]:
        """In any order."""
        with self._reading():
            found = self._at_commit(table)
            names = tuple(dict.fromkeys((*key, *values)))
            ranged = part.columns if isinstance(part, KeyRange) else ()
            for batch in found.scan(list(dict.fromkeys((*names, *ranged))), _bounds(found, key, part)):
                kept = _kept(batch, key, part)
                columns = [texts_of(batch.column(name)) for name in names]
                for number, row in enumerate(zip(*columns, strict=True)):
                    if kept(number, row):
                        yield row

    def _at_commit(self, table: str) -> VersionedTable:
        pinned = {} if self._pinned is None else self._pinned
        found = pinned.get(table) or self._lake.table(table)
        if found is None:
            raise UncomparableError(f"{self.name}: table {table} does not exist any more")
        pinned[table] = found
        return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with self._lake.as_sink_errors("reading"):
                yield
        except SinkError as error:
            raise SideError(f"{self.name}: {error}") from error


def _key_kind(type_: pa.DataType) -> KeyKind | None:
    if pa.types.is_integer(type_):
        return KeyKind.INTEGER
    return KeyKind.TEXT if pa.types.is_string(type_) or pa.types.is_large_string(type_) else None


def _bounds(table: VersionedTable, key: Sequence[str], part: Part) -> ValueBounds | None:
    """Which files may have rows of the part."""
    if isinstance(part, KeyRange):
        return bounds_of(table, part.columns, part.chunk)
    if not isinstance(part, KeySet) or not part.natives[0]:
        return None
    is_number = pa.types.is_integer(table.schema.field(key[0]).type)
    among: Sequence[int] | Sequence[str] = [one[0] for one in part.keys]
    if is_number:
        among = [int(text) for text in among]
    return ValueBounds(key[0], min(among), max(among), tuple(sorted(set(among))))


def _kept(batch: pa.RecordBatch, key: Sequence[str], part: Part) -> Callable[[int, Row], bool]:
    """Which rows of a batch are of the part, by their numbers and texts."""
    if isinstance(part, KeyRange):
        chunk = part.chunk
        places: Sequence[tuple[Any, ...]] = list(
            zip(*(batch.column(name).to_pylist() for name in part.columns), strict=True)
        )
        return lambda number, _row: in_range(places[number], chunk)
    if isinstance(part, KeySet):
        wanted, width = frozenset(part.keys), len(key)
        return lambda _number, row: tuple(text or "" for text in row[:width]) in wanted
    return lambda _number, _row: True
