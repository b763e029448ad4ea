"""Panics of libraries in Rust, which pyo3 raises past every ``except Exception``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headgate.sinks.contract import SinkRefusedError

__all__ = ["panics_as_sink_errors"]

_PANIC: Final = ("pyo3_runtime", "PanicException")
"""Module and name of the class. Each library has one of its own, and none can be imported."""


@contextmanager
def panics_as_sink_errors(doing: str) -> Iterator[None]:
    """Raise a panic as SinkRefusedError: one that escapes would end the process, and all of its tables with it.

    Its text may have values, so it is not repeated. The library has written it to standard error.
    """
    try:
        yield
    except BaseException as error:
        if (type(error).__module__, type(error).__name__) != _PANIC:
            raise
        raise SinkRefusedError(
            f"{doing}: a library of lake tables panicked, which is an error of its own or of Headgate. Its message "
            "is in this process's standard error. Report it, with the table's columns and partitions"
        ) from None
