"""Which columns of a data file have bounds: not those of which pyiceberg would compute wrong ones, or fail to.

Readers leave out files by the least and greatest value of a column, and so does an upsert.

- Arrow's statistics of a row group have no value of more than 4 KiB, and pyiceberg then takes the bounds of the file's
  other row groups for those of the file.
- A long text's upper bound is its first characters, the last of them one higher. After U+D7FF comes half a character,
  which is not a text.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata

__all__ = ["MODE", "with_right_bounds"]

MODE: Final = "write.metadata.metrics.column."
"""The property that sets which metrics of a column are collected, before the column's name."""

COUNTS: Final = "counts"
BYTES_MAX: Final = 4096
"""Of a value in Arrow's statistics."""

_BEFORE_HALVES: Final = "\ud7ff"


def with_right_bounds(metadata: TableMetadata, rows: pa.Table) -> TableMetadata:
    """The metadata by which the rows are written: with counts only, where bounds would be wrong."""
    modes = {f"{MODE}{name}": COUNTS for name in rows.column_names if not _has_right_bounds(rows[name])}
    return metadata.model_copy(update={"properties": {**metadata.properties, **modes}}) if modes else metadata


def _has_right_bounds(values: pa.ChunkedArray) -> bool:
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if not is_text and not pa.types.is_binary(values.type) and not pa.types.is_large_binary(values.type):
        return True
    if (pc.max(pc.binary_length(values)).as_py() or 0) > BYTES_MAX:
        return False
    return not (is_text and pc.any(pc.match_substring(values, _BEFORE_HALVES)).as_py())
