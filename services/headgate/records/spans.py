"""Spans: a table, or a part of one, and the one grammar of their names.

    public.orders            the whole table
    public.orders~0-3.6      source partitions 0, 1, 2, 3 and 6 of it

A span's name lists its partitions, in only one way: ascending, neighbours drawn together. So overlapping spans of one
feed can be recognized by their names, on every topic and in every process; and a span's plan can be made from any
record of its feed of the same form, however its tables were divided when that record was written.

Names of Kafka topics have no ``~``, hence neither have tables named after them; a table whose name reads like a part
is refused when its feed is accepted.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.records.control import FeedRecorded, PausedTable, SpanPlan

_PART: Final = re.compile(r"(?P<table>.+)~(?P<runs>\d+(?:-\d+)?(?:\.\d+(?:-\d+)?)*)\Z", re.DOTALL)

PARTITION_MAX: Final = 2**31 - 1
"""Kafka's partition numbers have 31 bits: a longer run of digits is a name, not a number."""

RUN_LENGTH_MAX: Final = 100_000
"""Partitions in one run; far beyond any topic, and a name that contains more does not cost memory."""


class SpanName(msgspec.Struct, frozen=True):
    """A span's name, taken apart; ``partitions`` is None for a whole table, else ascending and not empty."""

    table: str
    partitions: tuple[int, ...] | None = None

    def text(self) -> str:
        """The name as keys, requests and people have it."""
        if self.partitions is None:
            return self.table
        runs = ".".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(self.partitions))
        return f"{self.table}~{runs}"


def _runs(partitions: Sequence[int]) -> list[tuple[int, int]]:
    breaks = [number for number, (left, right) in enumerate(pairwise(partitions), 1) if right != left + 1]
    edges = [0, *breaks, len(partitions)]
    return [(partitions[start], partitions[stop - 1]) for start, stop in pairwise(edges)]


def parse_span(text: str) -> SpanName:
    """The name taken apart. What is not the one spelling of a part is the name of a table: ``text()`` gives it back."""
    found = _PART.match(text)
    if found is None:
        return SpanName(text)
    partitions: list[int] = []
    for run in found["runs"].split("."):
        first, _, last = run.partition("-")
        low, high = int(first), int(last or first)
        if high > PARTITION_MAX or high - low >= RUN_LENGTH_MAX:
            return SpanName(text)
        partitions.extend(range(low, high + 1))
    name = SpanName(found["table"], tuple(partitions))
    is_ascending = bool(partitions) and all(left < right for left, right in pairwise(partitions))
    return name if is_ascending and name.text() == text else SpanName(text)


def table_of(span: str) -> str:
    """The table that a span is, or is a part of: the name its whole would have."""
    return parse_span(span).table if "~" in span else span


def overlap(one: str, other: str) -> bool:
    """Whether two spans of one feed share a partition."""
    if "~" not in one and "~" not in other:
        return one == other
    left, right = parse_span(one), parse_span(other)
    if left.table != right.table:
        return False
    if left.partitions is None or right.partitions is None:
        return True
    return not set(left.partitions).isdisjoint(right.partitions)


def plan_of(plans: Iterable[SpanPlan], span: str) -> SpanPlan | None:
    """The plan of a span of the feed, however ``plans`` divide its table now; None if they do not cover it."""
    name = parse_span(span)
    found = [plan for plan in plans if plan.span == span or table_of(plan.span) == name.table]
    if not found:
        return None
    whole = unite(found)
    if name.partitions is None:
        return whole
    if not set(name.partitions) <= set(whole.start):
        return None
    return replace(whole, span=span, start={partition: whole.start[partition] for partition in name.partitions})


def unite(plans: Sequence[SpanPlan]) -> SpanPlan:
    """The plan of a whole table from those of its parts, or from its own."""
    start = {partition: offset for plan in plans for partition, offset in plan.start.items()}
    return replace(plans[0], span=table_of(plans[0].span), start=dict(sorted(start.items())))


def wholes(plans: Iterable[SpanPlan]) -> tuple[SpanPlan, ...]:
    """The plans of the feed's tables as if none was divided, sorted."""
    parts: dict[str, list[SpanPlan]] = {}
    for plan in plans:
        parts.setdefault(table_of(plan.span), []).append(plan)
    return tuple(unite(parts[table]) for table in sorted(parts))


def divide(plan: SpanPlan, parts: int) -> tuple[SpanPlan, ...]:
    """The plan of a whole table as ``parts`` plans of neighbouring partitions, their numbers differing by one at most.

    Raises ValueError if there are fewer partitions than parts, or fewer than two parts.
    """
    partitions = sorted(plan.start)
    if not 2 <= parts <= len(partitions):
        raise ValueError(f"{plan.span}: {len(partitions)} partitions cannot be divided into {parts} parts")
    edges = [number * len(partitions) // parts for number in range(parts + 1)]
    return tuple(
        replace(
            plan,
            span=SpanName(plan.span, tuple(partitions[start:stop])).text(),
            start={partition: plan.start[partition] for partition in partitions[start:stop]},
        )
        for start, stop in pairwise(edges)
    )


def paused_table(feed: FeedRecorded, span: str) -> PausedTable | None:
    """Who has paused the table of ``span``, and when; None if it is not paused."""
    if not feed.paused:
        return None  # called for every span of a feed
    table = table_of(span)
    return next((paused for paused in feed.paused if paused.table == table), None)
