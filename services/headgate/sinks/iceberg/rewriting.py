"""Copy-on-write: the files that have a row of a batch are written again, without the rows that it changes.

Which files those are is found by the bounds of the key's first column, and then by reading them. pyiceberg's own upsert
and delete make an expression of every key, which takes minutes for a large batch (docs/adr/0125).
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.types import DateType, IntegerType, LongType, PrimitiveType, StringType, TimestampType, TimestamptzType

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.bounds import with_right_bounds
from headgate.sinks.iceberg.exact_table import ExactTable
from headgate.sinks.iceberg.partitions import Pruning
from headgate.sinks.iceberg.transaction import overwrite
from headgate.sinks.lake.staged_rows import GONE, absent_column, column
from headgate.sinks.lake.tables import Altered, Upserts

__all__ = ["Rewriting"]

FILE_BYTES: Final = 128 << 20
"""Of rows in memory that are written together: small files become one, and large ones stay apart by their keys."""

_OLD: Final = "old"
_NEW: Final = "new"
_BOUNDED: Final = (IntegerType, LongType, DateType, TimestampType, TimestamptzType, StringType)
"""Types whose bounds have the order of their values as Python has it."""


class Rewriting:
    """The files that one commit writes."""

    def __init__(self, handle: ExactTable) -> None:
        self._handle = handle
        self._schema = handle.schema().as_arrow()
        self._optional = pa.schema([field.with_nullable(True) for field in self._schema])
        self._written: list[DataFile] = []
        self._numbers = count()

    def append(self, rows: pa.Table, transaction: Transaction, about: dict[str, str]) -> None:
        """Add a snapshot with these rows."""
        with transaction.update_snapshot(snapshot_properties=about).fast_append() as snapshot:
            for file in self._write(rows, transaction):
                snapshot.append_data_file(file)

    def upsert(self, upserts: Upserts, transaction: Transaction, about: dict[str, str]) -> None:
        """Add a snapshot in which these rows have replaced those of their keys. None if that changes nothing."""
        key = [column(list(upserts.columns).index(name)) for name in upserts.key]
        wanted = upserts.rows.select(key).rename_columns(list(upserts.key))
        touched: list[DataFile] = []
        rest: list[pa.Table] = []
        replaced: list[pa.Table] = []
        places: list[pa.Array] = []
        added: list[DataFile] = []
        for file, found in self._candidates(wanted):
            old, new = _matches(found, wanted)
            if not len(old):
                continue
            touched.append(file)
            rest.append(_without(found, old))
            replaced.append(found.take(old))
            places.append(new)
            if sum(each.nbytes for each in rest) >= FILE_BYTES:
                added += self._write(pa.concat_tables(rest), transaction)
                rest.clear()
        rows = _resulting(
            upserts, pa.concat_tables(replaced) if replaced else None, pa.chunked_array(places, pa.int64())
        )
        added += self._write(pa.concat_tables([*rest, rows.cast(self._optional)]), transaction)
        if not touched and not added:
            return
        appending = transaction.update_snapshot(snapshot_properties=about)
        with overwrite(transaction, about) if touched else appending.fast_append() as snapshot:
            for file in touched:
                snapshot.delete_data_file(file)
            for file in added:
                snapshot.append_data_file(file)

    def fill(self, altered: Altered, transaction: Transaction, about: dict[str, str]) -> None:
        """Add a snapshot in which all rows have the values of new columns. The transaction has the new schema."""
        tasks = list(self._handle.scan().plan_files())
        if not tasks:
            return
        schema = transaction.table_metadata.schema().as_arrow()
        with overwrite(transaction, about) as snapshot:
            for task in tasks:
                rows = self._rows_of(task)
                rows = rows.rename_columns([altered.renamed.get(name, name) for name in rows.column_names])
                for field, value in altered.added:
                    rows = rows.append_column(field.name, pa.repeat(value, rows.num_rows))
                snapshot.delete_data_file(task.file)
                for file in self._write_fitting(rows.select(schema.names).cast(schema), transaction):
                    snapshot.append_data_file(file)

    def compact(self, target_bytes: int, key: str | None, transaction: Transaction, about: dict[str, str]) -> None:
        """Add a snapshot in which small files of one partition are written together. None if that changes nothing.

        ``key``: the first column of the table's key.
        """
        touched: list[DataFile] = []
        added: list[DataFile] = []
        for tasks in self._small_files(target_bytes, key):
            touched += [task.file for task in tasks]
            added += self._write(pa.concat_tables([self._rows_of(task) for task in tasks]), transaction)
        if not touched:
            return
        with overwrite(transaction, about) as snapshot:
            for file in touched:
                snapshot.delete_data_file(file)
            for file in added:
                snapshot.append_data_file(file)

    def _small_files(self, target_bytes: int, key: str | None) -> Iterator[list[FileScanTask]]:
        """Files of one partition that are at most ``target_bytes`` together, at least two at a time.

        Files that are written together are in the order of their keys, so that an upsert still finds few. A file above
        half of the target is left alone, mostly: otherwise each run would write the whole table again.
        """
        field = None if key is None else self._handle.schema().find_field(key)

        def least(task: FileScanTask) -> Any:
            low = None if field is None else (task.file.lower_bounds or {}).get(field.field_id)
            if field is None or low is None or not isinstance(field.field_type, _BOUNDED):
                return (0, 0)
            return (1, from_bytes(field.field_type, low))

        groups: dict[tuple[Any, ...], list[FileScanTask]] = {}
        for task in self._handle.scan().plan_files():
            file = task.file
            values = [file.partition[at] for at in range(len(file.partition))]
            groups.setdefault((file.spec_id, *values), []).append(task)
        for tasks in groups.values():
            together: list[FileScanTask] = []
            for task in sorted(tasks, key=least):
                size = sum(each.file.file_size_in_bytes for each in together) + task.file.file_size_in_bytes
                if together and size > target_bytes:
                    if len(together) > 1:
                        yield together
                    together = []
                together.append(task)
            if len(together) > 1:
                yield together

    def discard(self) -> None:
        """Remove what was written, where it is not committed."""
        for file in self._written:
            with suppress(FileNotFoundError):  # maintenance has removed it
                self._handle.io.delete(file.file_path)

    def _candidates(self, wanted: pa.Table) -> Iterator[tuple[DataFile, pa.Table]]:
        """Files that may have a row with one of these keys, with their rows."""
        bounds, pruning = _Bounds(self._handle, wanted), Pruning(self._handle, wanted)
        try:
            files = self._handle.scan().plan_files()
            tasks = [task for task in files if bounds.may_have(task.file) and pruning.may_have(task.file)]
        except ValueError as error:
            if "equality delete" not in str(error).lower():
                raise
            raise SinkRefusedError(
                f"table {'.'.join(self._handle.name())} has equality deletes, which pyiceberg does not read. Rewrite "
                "its data files with the engine that wrote them, and let it write no equality deletes"
            ) from error
        for task in tasks:
            yield task.file, self._rows_of(task)

    def _rows_of(self, task: FileScanTask) -> pa.Table:
        scan = ArrowScan(self._handle.metadata, self._handle.io, self._handle.schema(), AlwaysTrue())
        return scan.to_table([task]).cast(self._optional)

    def _write(self, rows: pa.Table, transaction: Transaction) -> list[DataFile]:
        return self._write_fitting(self._fit(rows), transaction) if rows.num_rows else []

    def _write_fitting(self, rows: pa.Table, transaction: Transaction) -> list[DataFile]:
        """Rows as the transaction's own schema has them."""
        files: list[DataFile] = []
        metadata = with_right_bounds(transaction.table_metadata, rows)
        for file in _dataframe_to_data_files(metadata, rows, self._handle.io, counter=self._numbers):
            files.append(file)
            self._written.append(file)
        written = sum(file.record_count for file in files)
        if written != rows.num_rows:
            raise SinkRefusedError(
                f"table {'.'.join(self._handle.name())}: {rows.num_rows} rows were divided by its partitions into "
                f"{written}. pyiceberg lost some, so nothing was committed. Create the table with other partitions"
            )
        return files

    def _fit(self, rows: pa.Table) -> pa.Table:
        """Rows as the table declares them. Raises SinkRefusedError for NULL in a column that must have a value."""
        for field in self._schema:
            if not field.nullable and rows[field.name].null_count:
                raise SinkRefusedError(
                    f"table {'.'.join(self._handle.name())}, column {field.name}: it is required, and a row has no "
                    "value for it. Make the column optional"
                )
        return rows.cast(self._schema)


class _Bounds:
    """Whether a file may have one of the keys, by the least and the greatest value of the key's first column."""

    def __init__(self, handle: ExactTable, wanted: pa.Table) -> None:
        field = handle.schema().find_field(wanted.column_names[0])
        self._id = field.field_id
        self._type = field.field_type
        self._values: list[Any] | None = None
        if isinstance(self._type, _BOUNDED):
            self._values = sorted(set(_plain(wanted.column(0)).to_pylist()))

    def may_have(self, file: DataFile) -> bool:
        low, high = (file.lower_bounds or {}).get(self._id), (file.upper_bounds or {}).get(self._id)
        if self._values is None or low is None or high is None or not isinstance(self._type, PrimitiveType):
            return True
        at = bisect_left(self._values, from_bytes(self._type, low))
        return at < len(self._values) and self._values[at] <= from_bytes(self._type, high)


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and times as the numbers that bounds have."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _matches(found: pa.Table, wanted: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Rows of ``found`` with a key of ``wanted``, and for each the row of ``wanted``, as numbers."""
    keys = found.select(wanted.column_names).cast(wanted.schema)
    by = [column(number) for number in range(wanted.num_columns)]  # a column may have any name
    keys = keys.rename_columns(by).append_column(_OLD, pa.array(range(found.num_rows), pa.int64()))
    numbered = wanted.rename_columns(by).append_column(_NEW, pa.array(range(wanted.num_rows), pa.int64()))
    both = keys.join(numbered, by, join_type="inner")
    return both[_OLD].combine_chunks(), both[_NEW].combine_chunks()


def _without(found: pa.Table, numbers: pa.Array) -> pa.Table:
    every = pa.array(range(found.num_rows), pa.int64())
    return found.filter(pc.invert(pc.is_in(every, value_set=numbers)))


def _resulting(upserts: Upserts, replaced: pa.Table | None, places: pa.ChunkedArray) -> pa.Table:
    """The rows as they will be, without those that are deleted. Columns that an event lacks keep their values.

    ``places``: of each replaced row, the number of the row that replaces it.
    """
    rows = upserts.rows
    numbers = pa.array(range(rows.num_rows), pa.int64())
    arrays = []
    for number, name in enumerate(upserts.columns):
        values, flag = rows[column(number)], absent_column(number)
        if replaced is not None and flag in rows.column_names:
            former = _in_place_of(replaced[name], places, rows.num_rows).cast(values.type)
            keeps = pc.and_(pc.fill_null(rows[flag], False), pc.is_in(numbers, value_set=places.combine_chunks()))
            values = pc.if_else(keeps, former, values)
        arrays.append(values)
    return pa.table(arrays, names=list(upserts.columns)).filter(pc.invert(rows[GONE]))


def _in_place_of(replaced: pa.ChunkedArray, places: pa.ChunkedArray, size: int) -> pa.ChunkedArray:
    """The former value of each of ``size`` rows; NULL for a new row."""
    numbers: list[int | None] = [None] * size
    for number, new in enumerate(places.to_pylist()):
        numbers[new] = number
    return replaced.take(pa.array(numbers, pa.int64()))
