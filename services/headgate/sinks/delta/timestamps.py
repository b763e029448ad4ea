"""Refuses to read files whose timestamps delta-rs would change.

Spark writes timestamps of Parquet files as INT96 by default (``spark.sql.parquet.outputTimestampType``), and by its
OPTIMIZE files of Headgate's become such files. delta-rs (1.6) reads INT96 in nanoseconds, which 64 bits hold from 1677
to 2262 only. Values of other years come out as values of these, and a merge writes them.

A file whose least and greatest values in the log are of these years can be read either way. Of others the footer shows
how they are stored. It is read once, because files of a Delta table are never replaced.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.dataset import ParquetReadOptions
from pyarrow.fs import FileSystem, PyFileSystem

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.creating import quoted_by_spark
from headgate.sinks.lake.files import without_partitions

__all__ = ["READ_EXACTLY", "RightFiles"]

OLDEST: Final = datetime(1678, 1, 1, tzinfo=UTC)
NEWEST: Final = datetime(2262, 1, 1, tzinfo=UTC)
"""Between them nanoseconds since 1970 fit into 64 bits. The log has milliseconds, so the limits are whole years."""

JUDGED_MAX: Final = 100_000
"""Files that are remembered as right, some 20 MB of names. Of tables with more, the oldest footers are read again."""

READ_EXACTLY: Final = ParquetReadOptions(coerce_int96_timestamp_unit="us")
"""How pyarrow reads such files, which are Delta's timestamps exactly."""

_INT96: Final = "INT96"


class RightFiles:
    """Which files delta-rs is known to read as they are. For several threads, and all tables of a process."""

    def __init__(self, judged_max: int = JUDGED_MAX) -> None:
        self._judged_max = judged_max
        self._judged: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._lock = threading.Lock()

    def check(
        self, handle: DeltaTable, where: str, options: dict[str, str] | None, among: Collection[str] | None = None
    ) -> None:
        """Raise SinkRefusedError if a file of the table has timestamps that would be changed. OSError: no file to read.

        ``where``, ``options``: the table's place, and what delta-rs needs to use it. ``among``: the columns to
        read; None for all.
        """
        columns = [
            field.name
            for field in handle.schema().fields
            if "timestamp" in field.type.to_json() and (among is None or field.name in among)
        ]
        if not columns:
            return
        doubtful = [name for name in _doubtful(handle, columns) if not self._is_judged(where, name)]
        if not doubtful:
            return
        files: FileSystem = PyFileSystem(DeltaStorageHandler(where, options))
        for name in doubtful:
            _check_file(files, where, name)
            self._keep(where, name)

    def _is_judged(self, where: str, name: str) -> bool:
        with self._lock:
            return (where, name) in self._judged

    def _keep(self, where: str, name: str) -> None:
        with self._lock:
            self._judged[where, name] = None
            while len(self._judged) > self._judged_max:
                self._judged.popitem(last=False)


def _doubtful(handle: DeltaTable, columns: Sequence[str]) -> Iterator[str]:
    """Files that may have values of other years, by the log."""
    added = pa.table(handle.get_add_actions(flatten=True))
    partitions = set(handle.metadata().partition_columns)
    is_known = pa.array([True] * added.num_rows, pa.bool_())
    for column in columns:
        if column not in partitions:
            is_known = pc.and_(is_known, _within(added, column))
    for name, known in zip(added["path"].to_pylist(), is_known.to_pylist(), strict=True):
        if not known:
            yield unquote(name)


def _within(added: pa.Table, column: str) -> Any:
    """Of each file, whether the log shows that a column has only values of the right years, or only NULL."""
    nowhere = pa.array([False] * added.num_rows, pa.bool_())
    names = [f"{what}.{column}" for what in ("min", "max", "null_count")]
    if any(name not in added.column_names for name in names[:2]):
        return nowhere
    least, greatest = (_in_utc(added[name]) for name in names[:2])
    found = pc.and_(
        pc.greater_equal(least, pa.scalar(OLDEST, least.type)), pc.less(greatest, pa.scalar(NEWEST, greatest.type))
    )
    found = pc.fill_null(found, False)
    if names[2] not in added.column_names:
        return found
    return pc.or_(found, pc.fill_null(pc.equal(added[names[2]], added["num_records"]), False))


def _in_utc(values: Any) -> Any:
    """Timestamps without a zone (``timestamp_ntz``) as if they were in UTC."""
    return values.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def _check_file(files: FileSystem, where: str, name: str) -> None:
    with files.open_input_file(name) as file:
        footer = pq.read_metadata(file)
    columns = [footer.schema.column(n) for n in range(footer.num_columns)]
    stored = [column.path for column in columns if column.physical_type == _INT96]
    if not stored:
        return
    with files.open_input_file(name) as file:
        for batch in pq.ParquetFile(file, coerce_int96_timestamp_unit="us").iter_batches(columns=stored):
            if _has_others(pa.table(batch)):
                raise SinkRefusedError(_refusal(where, name, stored))


def _has_others(rows: pa.Table) -> bool:
    while any(pa.types.is_struct(field.type) for field in rows.schema):
        rows = rows.flatten()
    for values in rows.columns:
        times = values.combine_chunks()
        while pa.types.is_list(times.type):
            times = times.flatten()
        limits = pc.min_max(times.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
        least, greatest = limits["min"].as_py(), limits["max"].as_py()
        if least is not None and (least < OLDEST or greatest >= NEWEST):
            return True
    return False


def _refusal(where: str, name: str, columns: Sequence[str]) -> str:
    file, table = without_partitions(f"{where}/{name}"), f"delta.{quoted_by_spark(where)}"
    years = f"before {OLDEST.year} or after {NEWEST.year - 1}"
    return (
        f"table {where}: file {file} has timestamps of years {years} as INT96 in {', '.join(columns)}, which delta-rs "  # noqa: S608 - a text for people
        "would change. A job of Spark's has written it. Set spark.sql.parquet.outputTimestampType to TIMESTAMP_MICROS "
        f"in such jobs, and with it have Spark write the rows again: INSERT OVERWRITE {table} SELECT * FROM {table}"
    )
