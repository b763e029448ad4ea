"""Spark's ``mapInArrow``, without the pandas that PySpark imports for it in the driver.

Headgate moves Arrow batches and makes no data frames of pandas. To import it costs an agent half a second of CPU at its
start, and 44 MiB (docs/adr/0122). Workers have it: pyarrow imports it there when it makes NumPy arrays.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

__all__ = ["ArrowFunction", "arrow_column", "map_column", "map_in_arrow", "settle_pyspark"]

ArrowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def arrow_column(function: ArrowFunction, schema: StructType | str, columns: Iterable[str]) -> Column:
    """``function`` of rows with these ``columns``, as Spark's planner knows it.

    ``mapInArrow`` makes the same each time it is called, which is a dozen calls between the processes.
    """
    # pandas_udf, which is the documented way to it, demands pandas for functions of Arrow batches too.
    made: Any = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Column = made(*[col(name) for name in columns])
    return column


def map_column(rows: DataFrame, column: Column) -> DataFrame:
    """``rows.mapInArrow`` with a function that ``arrow_column`` has made."""
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
    """``rows.mapInArrow(function, schema)``."""
    return map_column(rows, arrow_column(function, schema, rows.columns))


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden from what imports it without need", name=fullname)
        return None


@contextmanager
def _pandas_hidden() -> Iterator[None]:
    """An import of pandas fails within, as if it were not installed, and succeeds afterwards."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def settle_pyspark() -> None:
    """Let PySpark find no pandas in the driver, where it looks for it once, though only its own tests need to know.

    With the first list that a call hands to the JVM it asks its module for tests whether there is a numpy.
    """
    with _pandas_hidden():
        import_module("pyspark.testing.utils")
