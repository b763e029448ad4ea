"""Names of tables in stored records, as today's grammar has them.

Older versions, which had no slices (slices.py), stored names that are a slice's today and meant a table, and quotes as
the feed had them. Such a record keeps its names, because they are in keys of other records too. Whatever asks a
database for a table, or compares tables of two feeds, takes the name from here.
"""

from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.records.control import FeedRecorded, SpanPlan
from headgate.records.identifiers import normal_table, split_whole, table_spelling
from headgate.records.slices import slice_of

__all__ = ["has_slices", "plan_today", "plans_today", "table_today"]

SPECS_MAX: Final = 256
"""Specs whose ``has_slices`` is cached: it is asked for each slice of a feed, one feed after the other."""


class _Options(msgspec.Struct):
    into: object = None


class _Spec(msgspec.Struct):
    tables: dict[str, _Options] = {}


@lru_cache(maxsize=SPECS_MAX)
def has_slices(spec: str) -> bool:
    """Whether the feed of this stored spec can have slices: one of its entries in ``tables`` has ``into``."""
    try:
        options = msgspec.json.decode(spec, type=_Spec).tables.values()
    except msgspec.MsgspecError:
        return False  # of no feed that can be read, and it has no tables either
    return any(entry.into is not None for entry in options)


def table_today(spec: str, table: str) -> str:
    """The one spelling of a table that a record of the feed names. ``spec``: the feed's, as it is stored."""
    if slice_of(table) is not None and not has_slices(spec):
        return table_spelling(*split_whole(table))
    return normal_table(table)


def plan_today(spec: str, plan: SpanPlan) -> SpanPlan:
    """The plan, under the same span, with a slice's name only if it is one."""
    if slice_of(plan.table) is None:
        return plan
    return replace(plan, table=table_today(spec, plan.table))


def plans_today(feed: FeedRecorded) -> tuple[SpanPlan, ...]:
    """The feed's plans, each as ``plan_today`` has it."""
    return tuple(plan_today(feed.spec, plan) for plan in feed.spans)
