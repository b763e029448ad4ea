"""The cause of a Spark error, in one line: Spark's errors are pages of stack traces with the cause at the end."""

import re
from typing import Final

OUT_OF_MEMORY: Final = "the Spark JVM ran out of memory: give it more (HEADGATE_SPARK__MEMORY); large rows need it"

_JAVA_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"
"""A task reports it before its JVM ends, or instead."""

_CAUSED_BY: Final = "Caused by: "
_PYTHON_TRACEBACK: Final = "Traceback (most recent call last):"

_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
"""How the line of an exception begins, below its trace and before more lines of its text."""

_PY4J: Final = "An error occurred while calling "
_SPARK: Final = "org.apache.spark.SparkException: "

LENGTH_MAX: Final = 900
"""Of all of it: Spark's messages may name every partition of a query. What errors of tables have room for."""

CAUSES_MAX: Final = 5
"""How many causes are kept, from the end of the chain, which describes what is wrong."""


def cause_of(error: BaseException) -> str:
    """Its beginning and what caused it, down to the bottom: of Python's trace, if it was a worker's, else of Java's."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_PY4J)]
    if not lines:
        return type(error).__name__
    if _PYTHON_TRACEBACK in lines:
        traced = lines[len(lines) - lines[::-1].index(_PYTHON_TRACEBACK) :]
        cause = next((line for line in traced if _RAISED.match(line)), traced[-1])
        return f"a Python worker of Spark ended with {cause}"[:LENGTH_MAX]
    below = _below(error)
    if any(_JAVA_OUT_OF_MEMORY in line for line in (*lines, *below)):
        return OUT_OF_MEMORY
    said = [lines[0].removeprefix(_SPARK)]
    for cause in (below or [line for line in lines if line.startswith(_CAUSED_BY)])[-CAUSES_MAX:]:
        text = cause.removeprefix(_CAUSED_BY).removeprefix(_SPARK)
        if not any(text in before for before in said):
            said.append(text)
    return "; caused by ".join(said)[:LENGTH_MAX]


def _below(error: BaseException) -> list[str]:
    """First lines of what caused it, outermost first: PySpark keeps Java's chain, and shows none of it."""
    causes, below = [], getattr(error, "_cause", None)
    while below is not None:
        causes.append(str(getattr(below, "_desc", below)).strip().partition("\n")[0])
        below = getattr(below, "_cause", None)
    return causes
