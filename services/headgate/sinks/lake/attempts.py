"""Reads, decides and commits again while other commits come in between.

A commit is made on exactly the version that was read, and tried once (lake/tables.py). So the loser of a race reads
again, and repeats its checks.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from headgate.sinks.contract import SinkUnavailableError
from headgate.sinks.lake.tables import ConflictError

__all__ = ["ATTEMPTS_MAX", "until_committed"]

ATTEMPTS_MAX: Final = 20
"""Each is lost to another commit of the same table or ledger, which then has got further."""

T = TypeVar("T")


def until_committed(doing: str, attempt: Callable[[], T]) -> T:
    """What ``attempt`` returns. It begins with reading, and is called again each time it raises ConflictError.

    That is, after another commit came in between, or after its own, if it must know what others made of that.
    Raises SinkUnavailableError, which names what was ``doing``, when no attempt has won.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            return attempt()
        except ConflictError:
            continue
    raise SinkUnavailableError(f"{doing}: {ATTEMPTS_MAX} attempts were overtaken by other commits. It is retried")
