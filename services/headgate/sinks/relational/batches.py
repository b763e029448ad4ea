"""Checks of a batch before it is sent to a database, and the errors of refused changes."""

from collections.abc import Sequence
from typing import Final

from headgate.config.error_values import quoted_value
from headgate.formats.change import Change, ChangeError, Operation
from headgate.formats.reducing import (
    MixedKeysError,
    OrphanRowError,
    Reduced,
    WrongKeyError,
    alike_runs,
    reduce_changes,
)
from headgate.records.name_lists import shown_names
from headgate.records.spans import parse_span
from headgate.sinks.contract import ChangeBatch, ChangeRefusedError, Claim, OffsetRange
from headgate.sinks.relational.grouping import OrphanRowsError, UnwritableError

ORPHANS: Final = (OrphanRowError, OrphanRowsError)
"""A partial update of a row that does not exist. Its delete may follow, so it is retried, like a change that only a
rule between rows refuses."""


def check_ranges(batch: ChangeBatch) -> None:
    """The caller's part of the fence: no change outside the offsets that the batch moves over. ValueError if not."""
    ranges = batch.ranges
    for partition, span in ranges.items():
        if span.next < span.expected or partition not in batch.claim.start:
            raise ValueError(f"range {span} of partition {partition} is not one of the claim {batch.claim}")
    for change in batch.changes:
        span = ranges[change.partition]
        if not span.expected <= change.offset < span.next:
            raise ValueError(f"offset {change.offset} of partition {change.partition} is outside the batch's {span}")


def places_of(batch: ChangeBatch) -> str:
    """Where in the log a batch begins, for people."""
    starts = [f"partition {p} from offset {span.expected}" for p, span in sorted(batch.ranges.items())]
    return f"topic {batch.claim.topic}, {shown_names(starts)}"


def check_truncates(claim: Claim, changes: Sequence[Change]) -> None:
    """Raise ChangeError for a TRUNCATE of a topic of several partitions: what it wipes is anybody's guess.

    What counts are the topic's partitions, not the span's: a part of a table, even a single partition, has siblings.
    """
    is_part = claim.span is not None and parse_span(claim.span).partitions is not None
    if (len(claim.start) > 1 or is_part) and any(change.operation is Operation.TRUNCATE for change in changes):
        raise ChangeError(
            f"TRUNCATE in topic {claim.topic}, which has several partitions, is not ordered with the rows of the "
            "other partitions, so it is not known which rows it removed. Pause the feed, delete the rows at the "
            "sink, and resume behind this event (`headgate feed resume --from FILE`). Keep TRUNCATE out of the "
            "topic (Debezium: "
            "skipped.operations=t), or use a topic of one partition"
        )


def last_words(changes: Sequence[Change], key: Sequence[str]) -> Reduced:
    """The changes, reduced by the table's key; where it has none, as they are: rows to be added.

    Raises ChangeError, MixedKeysError for what must be applied part by part (``words_by_part``).
    """
    parts = words_by_part(changes, key)
    if len(parts) > 1:
        raise MixedKeysError("the keys of the batch are not all written alike")
    return parts[0]


def words_by_part(changes: Sequence[Change], key: Sequence[str]) -> list[Reduced]:
    """The same, to be applied one after the other where keys are not all written alike. Raises ChangeError."""
    if not changes:
        return [Reduced(truncate=False, deletes=[], upserts=[])]
    return [reduce_changes(run, key) for run in alike_runs(changes, key)] if key else [_additions(changes)]


def _additions(changes: Sequence[Change]) -> Reduced:
    added: list[Change] = []
    truncate = False
    for change in changes:
        if change.operation is Operation.TRUNCATE:
            truncate = True
            added.clear()
        elif change.key or change.operation is not Operation.UPSERT:
            raise WrongKeyError(change, ())
        else:
            added.append(change)
    return Reduced(truncate, [], added)


def unmoved(batch: ChangeBatch) -> dict[int, OffsetRange]:
    """Ranges that ask the fence, and lock its rows, without moving a position."""
    return {partition: OffsetRange(span.expected, span.expected) for partition, span in batch.ranges.items()}


def refused_change(
    kind: type[ChangeRefusedError],
    table: str,
    topic: str,
    change: Change,
    error: Exception,
    *,
    column: str | None,
    reason: str,
    key: Sequence[str] | None = None,
) -> ChangeRefusedError:
    """The refusal of one change, with all that helps to find it. ``column`` and ``reason`` are the database's.

    This is the one place that may quote a value (config/error_values.py), of a column outside ``key``; none if the key
    is not known. ``reason`` quotes none.
    """
    if isinstance(error, UnwritableError):
        column = error.column
    elif isinstance(error, OrphanRowsError):
        reason = (
            "the event leaves out unchanged columns, but the sink does not have the row. Either the connector sends "
            "its last changes again and the row's delete follows, or the row was never copied or was deleted at the "
            "sink, or the feed's `where` lets it in only now. In the second case, copy the row with `headgate table "
            "resync`; in the last one too, or set REPLICA IDENTITY FULL at the source"
        )
    where = table if column is None else f"{table}, column {column}"
    if key is not None and column is not None and column not in key and column in (change.row or {}):
        reason += quoted_value((change.row or {})[column])
    text = f"{where}: {reason} [topic {topic}, partition {change.partition}, offset {change.offset}]"
    return kind(text, change.partition, change.offset)
