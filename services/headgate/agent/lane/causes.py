"""What went wrong in Spark, in a line: its errors carry pages of stack traces, with the cause at their end."""

from typing import Final

__all__ = ["cause_of"]

_CAUSED_BY: Final = "Caused by: "
_PYTHON_TRACEBACK: Final = "Traceback (most recent call last):"

_PY4J: Final = "An error occurred while calling "
_SPARK: Final = "org.apache.spark.SparkException: "

LINE_LENGTH_MAX: Final = 500
"""Of the beginning, and of the cause: Spark's messages may name every partition of a query."""


def cause_of(error: Exception) -> str:
    """Its beginning, and the cause at the bottom of its trace: of Python's, if it was a worker's, else of Java's."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_PY4J)]
    if not lines:
        return type(error).__name__
    if _PYTHON_TRACEBACK in lines:
        traced = lines[len(lines) - lines[::-1].index(_PYTHON_TRACEBACK) :]
        cause = next((line for line in reversed(traced) if _is_said(line)), "")
        return f"a Python worker of Spark ended with {cause[:LINE_LENGTH_MAX]}"
    first = lines[0].removeprefix(_SPARK)[:LINE_LENGTH_MAX]
    cause = next((line for line in reversed(lines) if line.startswith(_CAUSED_BY)), "")
    cause = cause.removeprefix(_CAUSED_BY).removeprefix(_SPARK)[:LINE_LENGTH_MAX]
    return first if not cause or cause in first else f"{first}; caused by {cause}"


def _is_said(line: str) -> bool:
    """Whether it is no part of a trace, of Python or of Java."""
    return not line.startswith(("File ", "at ", "...", "JVM stacktrace", "SQLSTATE", "Driver stacktrace", _CAUSED_BY))
