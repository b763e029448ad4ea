"""Splits the rows of a lane's query in its tasks: Arrow batches in, chunks of one partition out.

A task reads several source partitions one after the other, each in offset order (the lane refuses every option that
would split one).
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from headgate.formats.debezium_schema import with_head

COLUMNS: Final = ("topic", "partition", "offset", "unix_millis(timestamp) AS append_ms", "key", "value")
"""Spark SQL for the columns that tasks expect, in this order."""

HEAD: Final = "head"
"""Which of the plan's heads was cut off a row's value, counted from 1; 0: none (heads.py)."""

HEADERS: Final = "headers"
"""One column more where bad changes are set aside with all that they came with."""


MARK: Final = "mark"
"""One column more where a change log is read: a Mark, which Spark makes of the record's headers."""


class Mark(IntEnum):
    """What a record of a change log is."""

    CHANGE = 0
    END = 1
    """A writer's last word in a stream: no row."""
    STRANGE = 2
    """No ChangeWriter wrote it."""


class Chunk(msgspec.Struct, frozen=True):
    """Rows of one partition in offset order, column by column; ``headers`` is Spark's column, if it was asked for.

    ``head``: what was cut off all of the values. ``marks``: of a change log.
    """

    topic: str
    partition: int
    offsets: Sequence[int] = ()
    appended_ms: Sequence[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    headers: Any = None
    head: bytes | None = None
    marks: Sequence[int] | None = None

    def from_offset(self, start: int) -> "Chunk":
        """The rows from offset ``start`` on."""
        return self._part(slice(bisect_left(self.offsets, start), None))

    def before(self, stop: int) -> "Chunk":
        """The rows below offset ``stop``."""
        return self._part(slice(0, bisect_left(self.offsets, stop)))

    def _part(self, part: slice) -> "Chunk":
        return Chunk(
            self.topic,
            self.partition,
            offsets=self.offsets[part],
            appended_ms=self.appended_ms[part],
            keys=self.keys[part],
            values=self.values[part],
            headers=None if self.headers is None else self.headers[part],
            head=self.head,
            marks=None if self.marks is None else self.marks[part],
        )

    def changes(self) -> "Chunk":
        """Without END markers."""
        if self.marks is None or Mark.END not in self.marks:
            return self
        rows = [row for row, mark in enumerate(self.marks) if mark != Mark.END]
        return Chunk(
            self.topic,
            self.partition,
            offsets=[self.offsets[row] for row in rows],
            appended_ms=[self.appended_ms[row] for row in rows],
            keys=[self.keys[row] for row in rows],
            values=[self.values[row] for row in rows],
            headers=None if self.headers is None else self.headers.take(pa.array(rows, pa.int64())),
            head=self.head,
            marks=[self.marks[row] for row in rows],
        )

    def first_strange(self) -> int | None:
        """The offset of the first record that no ChangeWriter wrote."""
        if self.marks is None or Mark.STRANGE not in self.marks:
            return None
        return self.offsets[self.marks.index(Mark.STRANGE)]

    def value_at(self, row: int) -> bytes | None:
        """Of one row, as it was written."""
        return with_head(self.head, self.values[row])

    def as_written(self) -> "Chunk":
        """With whole values."""
        if self.head is None:
            return self
        return msgspec.structs.replace(self, values=[with_head(self.head, value) for value in self.values], head=None)

    def headers_at(self, row: int) -> list[tuple[str, bytes | None]]:
        """Of one row, in the order in which they were written."""
        found: Sequence[Mapping[str, Any]] | None = None if self.headers is None else self.headers[row].as_py()
        return [(header["key"], header["value"]) for header in found or ()]


def chunks_of(batches: Iterator[pa.RecordBatch], heads: Sequence[bytes] = ()) -> Iterator[Chunk]:
    """The rows of one task, in the order in which they come; ``heads`` are the plan's."""
    for batch in batches:
        topics, partitions, offsets, appended, keys, values, *others = batch.columns
        further = dict(zip(batch.schema.names[-len(others) :], others, strict=True)) if others else {}
        headers, cut, marks = further.get(HEADERS), further.get(HEAD), further.get(MARK)
        for topic, partition, start, stop in _stretches(topics, partitions.to_numpy(zero_copy_only=False)):
            length = stop - start
            chunk = Chunk(
                topic,
                partition,
                offsets=_objects(offsets.slice(start, length)),
                appended_ms=_objects(appended.slice(start, length)),
                keys=_objects(keys.slice(start, length)),
                values=_objects(values.slice(start, length)),
                headers=None if headers is None else headers.slice(start, length),
                marks=None if marks is None else _objects(marks.slice(start, length)),
            )
            yield chunk if cut is None else _with_head(chunk, cut.slice(start, length).to_numpy(), heads)


def _with_head(chunk: Chunk, numbers: Any, heads: Sequence[bytes]) -> Chunk:
    """``numbers``: HEAD of its rows. Values that do not all have the same are made whole again."""
    first = int(numbers[0])
    if (numbers == first).all():
        return msgspec.structs.replace(chunk, head=heads[first - 1]) if first else chunk
    found = zip(numbers.tolist(), chunk.values, strict=True)
    values = [with_head(heads[number - 1], value) if number else value for number, value in found]
    return msgspec.structs.replace(chunk, values=values)


def _objects(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _stretches(topics: pa.Array, partitions: Any) -> Iterator[tuple[str, int, int, int]]:
    """(topic, partition, start, stop) of each stretch of rows of one partition."""
    if not len(partitions):
        return
    edges = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, stop in itertools.pairwise(edges):
        for topic, first, last in _same_topic(topics, start, stop):
            yield topic, int(partitions[start]), first, last


def _same_topic(topics: pa.Array, start: int, stop: int) -> Iterator[tuple[str, int, int]]:
    # A partition's rows are contiguous, so if its first and last row are of one topic, all rows between are too.
    if topics[start] == topics[stop - 1]:
        yield topics[start].as_py(), start, stop
        return
    codes = topics.slice(start, stop - start).dictionary_encode()
    numbers = codes.indices.to_numpy(zero_copy_only=False)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for first, last in itertools.pairwise(edges):
        yield codes.dictionary[numbers[first]].as_py(), start + first, start + last
