"""Removes the schema that every value repeats in Spark's JVM, before rows are copied to a Python worker.

A Debezium event with its schema is 2 kB, of which 300 bytes are the change. Workers report to the driver what values of
a topic begin with, byte for byte, up to their payload (their head); from the next batch on Spark cuts that off:

    whole values ──▶ task: heads met ──▶ driver ──▶ plan of the next batch and its ``select`` ──▶ payloads

A value that begins with anything else passes whole: nothing is cut by the look of it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame

from headgate.formats.debezium_schema import CLOSING
from headgate.replication.frames import HEAD
from headgate.replication.plan import HEAD_ROWS_MIN

HEADS_MAX: Final = 16
"""Topics cut in one batch, those with most rows: the expression compares each row's topic with one after the other."""

TOPICS_MAX: Final = 1_024
"""Topics whose heads are remembered, about 2 kB each: the oldest is let go first."""


class KnownHeads:
    """The heads that workers have reported, by topic."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def learn(self, told: Mapping[str, bytes]) -> None:
        """Take over what values came with; it replaces what was known of the topic."""
        for topic, head in told.items():
            self._known.pop(topic, None)
            if len(self._known) >= TOPICS_MAX:
                del self._known[next(iter(self._known))]
            self._known[topic] = head

    def worth_cutting(self, rows: Mapping[str, int]) -> tuple[tuple[str, bytes], ...]:
        """(topic, head) of those to be cut in a batch with so many ``rows`` of each topic."""
        worth = sorted(
            (-count, topic) for topic, count in rows.items() if count >= HEAD_ROWS_MIN and topic in self._known
        )
        return tuple((topic, self._known[topic]) for _, topic in worth[:HEADS_MAX])


def without_heads(rows: DataFrame, heads: Sequence[tuple[str, bytes]]) -> DataFrame:
    """Cut ``heads`` off ``rows`` that begin with them, and add a column (frames.HEAD) with the head's index."""
    if not heads:
        return rows
    numbered = list(enumerate(heads, start=1))
    found = " ".join(f"WHEN {_begins_with(*each)} THEN {number}" for number, each in numbered)
    left = " ".join(f"WHEN {number} THEN {_payload(len(head))}" for number, (_, head) in numbered)
    columns = [f"CASE {HEAD} {left} ELSE value END AS value" if name == "value" else name for name in rows.columns]
    return rows.selectExpr("*", f"CASE {found} ELSE 0 END AS {HEAD}").selectExpr(*columns, HEAD)


def _begins_with(topic: str, head: bytes) -> str:
    """So does a tombstone, which has no value: it would come between the others otherwise."""
    is_between = f"startswith(value, {_literal(head)}) AND endswith(value, {_literal(CLOSING)})"
    return f"topic = CAST({_literal(topic.encode())} AS STRING) AND (value IS NULL OR {is_between})"


def _payload(width: int) -> str:
    return f"substring(value, {width + 1}, octet_length(value) - {width + len(CLOSING)})"


def _literal(data: bytes) -> str:
    return f"X'{data.hex()}'"
