"""What the newest records show of columns, under the names that the columns have at the sink."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.records.control import SpanPlan
from headgate.sources.preview import Seen
from headgate.sources.table_options import spec_of

__all__ = ["shaped_seen"]


def shaped_seen(spec: FeedSpec, plans: Iterable[SpanPlan], seen: Mapping[str, Seen]) -> dict[str, Seen]:
    """``seen``, by topic, without columns that do not go to the sink, and those that are masked as ordinary ones.

    If one topic has several tables, columns are not known one by one, so what its records show is left as it is.
    """
    shaped = dict(seen)
    for plan in plans:
        columns = spec_of(spec, plan).columns
        if columns.shapes and plan.topic in seen and not spec.source.tables:
            shaped[plan.topic] = _shaped(columns, seen[plan.topic])
    return shaped


def _shaped(columns: ColumnOptions, told: Seen) -> Seen:
    return replace(
        told,
        columns=None if told.columns is None else _named(columns, told.columns) | columns.set.keys(),
        nulls=_named(columns, told.nulls),
        defaults=None if told.defaults is None else _named(columns, told.defaults - columns.mask.keys()),
        durations=_named(columns, told.durations - columns.mask.keys()),
    )


def _named(columns: ColumnOptions, names: Iterable[str]) -> frozenset[str]:
    return frozenset(columns.target(name) for name in names if columns.goes(name))
