"""Rows of lake tables by ranges of their key, read from the files that may have some."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import Value
from headgate.sinks.lake.shape import existing
from headgate.sinks.lake.tables import Lake, ValueBounds, VersionedTable
from headgate.sinks.lake.type_names import lake_name

__all__ = ["LakeRows", "bounds_of", "in_range"]


class LakeRows:
    """See TargetRows."""

    def __init__(self, lake: Lake, *, appends: bool) -> None:
        self._lake = lake
        self._appends = appends

    def columns(self, table: str) -> dict[str, str]:
        """See TargetRows."""
        with self._lake.as_sink_errors(f"reading table {table}"):
            shape = existing(self._lake, table, appends=self._appends)
        return {name: lake_name(type_) for name, type_ in shape.columns.items() if name not in shape.own_columns}

    def equality(self, table: str, key: Sequence[str]) -> tuple[str | None, ...]:  # noqa: ARG002
        """See RowSource. Texts are equal if all of their characters are."""
        return tuple(None for _ in key)

    def has_rows(self, table: str) -> bool:
        """See RowSource."""
        with self._lake.as_sink_errors(f"reading table {table}"):
            found = self._lake.table(table)
            return found is not None and any(batch.num_rows for batch in found.scan(list(found.types)[:1], None))

    def rows_within(
        self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk
    ) -> Iterator[tuple[Value, ...]]:
        """See RowReader."""
        with self._lake.as_sink_errors(f"reading table {table}"):
            found = self._lake.table(table)
            if found is None:
                return
            names = [*key, *columns]
            for batch in found.scan(names, bounds_of(found, key, chunk)):
                for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                    place = row[: len(key)]
                    if None not in place and in_range(place, chunk):
                        yield tuple(map(str, place)) + row[len(key) :]


def bounds_of(table: VersionedTable, key: Sequence[str], chunk: Chunk) -> ValueBounds | None:
    """The values that the key's first column has in the range, both ends included."""
    first = table.schema.field(key[0])
    low = None if chunk.above is None else _typed(first.type, chunk.above[0])
    high = None if chunk.upto is None else _typed(first.type, chunk.upto[0])
    return None if low is None and high is None else ValueBounds(key[0], low, high)


def _typed(type_: pa.DataType, text: object) -> int | str:
    return int(str(text)) if pa.types.is_integer(type_) else str(text)


def in_range(key: Sequence[object], chunk: Chunk) -> bool:
    """Whether a key is in the range, whose bounds are numbers or texts: texts by the order of their characters."""
    above, upto = _like(key, chunk.above), _like(key, chunk.upto)
    place = tuple(value if isinstance(value, int) else str(value) for value in key)
    return (above is None or above < place) and (upto is None or place <= upto)


def _like(key: Sequence[object], bound: Sequence[object] | None) -> tuple[int | str, ...] | None:
    if bound is None:
        return None
    return tuple(
        int(str(text)) if isinstance(value, int) else str(text) for value, text in zip(key, bound, strict=False)
    )
