"""Properties of a table that pyiceberg cannot read: it raises a bare ValueError, in the middle of a commit."""

from collections.abc import Mapping
from typing import Final

from pyiceberg.io.pyarrow import match_metrics_mode
from pyiceberg.table import TableProperties
from pyiceberg.utils.properties import property_as_bool, property_as_int

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.bounds import MODE

__all__ = ["check_properties"]

_ROW_GROUP: Final = TableProperties.PARQUET_ROW_GROUP_LIMIT

_NUMBERS: Final = (
    _ROW_GROUP,
    TableProperties.PARQUET_COMPRESSION_LEVEL,
    TableProperties.PARQUET_DICT_SIZE_BYTES,
    TableProperties.PARQUET_PAGE_ROW_LIMIT,
    TableProperties.PARQUET_PAGE_SIZE_BYTES,
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX,
    TableProperties.MANIFEST_TARGET_SIZE_BYTES,
    TableProperties.MANIFEST_MIN_MERGE_COUNT,
    TableProperties.COMMIT_MIN_RETRY_WAIT_MS,
    TableProperties.COMMIT_MAX_RETRY_WAIT_MS,
    TableProperties.COMMIT_TOTAL_RETRY_TIME_MS,
)
_BOOLEANS: Final = (
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED,
    TableProperties.MANIFEST_MERGE_ENABLED,
    TableProperties.OBJECT_STORE_ENABLED,
    TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS,
)
_METRICS: Final = TableProperties.DEFAULT_WRITE_METRICS_MODE


def check_properties(name: str, properties: Mapping[str, str]) -> None:
    """Raise SinkRefusedError for a value that pyiceberg, which reads it in a commit, cannot read."""
    for property_, text in properties.items():
        try:
            _read(property_, text)
        except ValueError as error:
            raise SinkRefusedError(
                f"table {name} has the property {property_}={text!r}, and pyiceberg cannot write by it: {error}. "
                f"Correct it, or unset it (Spark: ALTER TABLE … UNSET TBLPROPERTIES ('{property_}'))"
            ) from error


def _read(property_: str, text: str) -> None:
    """As pyiceberg reads it. Raises ValueError."""
    given = {property_: text}
    if property_ in _NUMBERS:
        number = property_as_int(given, property_)
        if number == 0 and property_ == _ROW_GROUP:
            raise ValueError("a row group has at least one row")
    elif property_ in _BOOLEANS:
        property_as_bool(given, property_, default=False)
    elif property_ == _METRICS or property_.startswith(MODE):
        match_metrics_mode(text)
