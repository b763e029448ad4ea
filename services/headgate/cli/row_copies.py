"""Requests to copy rows of a table from its source, as many at a time as one request may name."""

from collections.abc import Iterator, Sequence

import typer

from headgate.cli.changes import Permit
from headgate.cli.requests import ask, operation
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import OperationKind, RequestSettled
from headgate.records.row_copies import KEY_BYTES_MAX, KEYS_MAX, RowCopy, shown_row_copy

__all__ = ["copy_rows", "portions"]

Key = tuple[str, ...]


def copy_rows(
    log: KafkaLog, feed: str, table: str, rows: RowCopy, *, timeout_seconds: float, permit: Permit
) -> RequestSettled:
    """Have rows copied, and wait until they are. Returns the last outcome. Raises RequestError, LogError."""
    outcome: RequestSettled | None = None
    for keys in portions(rows.keys or ()):
        some = RowCopy(keys=keys, columns=rows.columns, delete=rows.delete)
        request = operation(OperationKind.RESYNC_TABLE, feed, table=table, spec=shown_row_copy(some))
        outcome = ask(log, request, timeout_seconds, permit)
    if outcome is None:
        raise typer.BadParameter("name at least one row")
    return outcome


def portions(keys: Sequence[Key]) -> Iterator[tuple[Key, ...]]:
    """The keys, as many at a time as one request may name. One that is too long is refused where it is asked for."""
    portion: list[Key] = []
    size = 0
    for key in keys:
        length = sum(len(text.encode(errors="surrogatepass")) for text in key)
        if portion and (len(portion) == KEYS_MAX or size + length > KEY_BYTES_MAX):
            yield tuple(portion)
            portion, size = [], 0
        portion.append(key)
        size += length
    if portion:
        yield tuple(portion)
