"""Types of a lake's columns as Arrow has them, by the names of Spark SQL."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

__all__ = ["ARROW", "lake_name"]

ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"), "string": pa.string(), "binary": pa.binary(),
}  # fmt: skip
"""All but decimals."""


def lake_name(type_: pa.DataType) -> str:
    """The bare name of a column's type, of LAKE_TYPES."""
    if pa.types.is_decimal(type_):
        return "decimal"
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    found = next((name for name, known in ARROW.items() if known == type_), None)
    if found is not None:
        return found
    return "binary" if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_) else "string"
