"""Sorts more rows than fit into memory: runs of them are sorted, put into a file, and merged."""

import heapq
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Final

import msgspec

from headgate.verify.contract import Row

__all__ = ["sorted_rows"]

RUN_ROWS: Final = 50_000
"""Rows sorted in memory at a time, some ten megabytes."""

_LENGTH_BYTES: Final = 4


def sorted_rows(rows: Iterable[Row], key_length: int) -> Iterator[Row]:
    """The rows by the texts of the first ``key_length`` columns, where NULL is the empty text.

    No more than RUN_ROWS of them are in memory, and one of each run.
    """

    def place(row: Row) -> tuple[str, ...]:
        return tuple(text or "" for text in row[:key_length])

    left = iter(rows)
    with ExitStack() as files:
        runs: list[Iterator[Row]] = []
        while run := sorted(itertools.islice(left, RUN_ROWS), key=place):
            if len(run) < RUN_ROWS:
                runs.append(iter(run))
                break
            runs.append(_read(_written(run, files.enter_context(tempfile.TemporaryFile()))))
        yield from heapq.merge(*runs, key=place)


def _written(run: Iterable[Row], file: IO[bytes]) -> IO[bytes]:
    for row in run:
        packed = msgspec.msgpack.encode(row)
        file.write(len(packed).to_bytes(_LENGTH_BYTES))
        file.write(packed)
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> Iterator[Row]:
    while length := file.read(_LENGTH_BYTES):
        yield msgspec.msgpack.decode(file.read(int.from_bytes(length)), type=tuple[str | None, ...])
