"""Checks the schemas of a topic's newest events, for a sink that writes them on as schemas of its own."""

from collections.abc import Iterable, Iterator, Mapping

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.formats.avro_rows import check_names, forms_of
from headgate.formats.change import ChangeError, is_described
from headgate.formats.shaping import Shaping
from headgate.records.control import SpanPlan
from headgate.sources.preview import FormatMismatchError, Seen
from headgate.sources.table_options import spec_of

__all__ = ["check_described", "described_rows"]


def check_described(spec: FeedSpec, plans: Iterable[SpanPlan], seen: Mapping[str, Seen]) -> None:
    """Raise FormatMismatchError for a table whose newest event has no schema, or one that cannot be written.

    If one topic has several tables, columns are not known one by one, so only whether there is a schema is checked.
    The types of computed columns are not: tables/column_options.py knows what the source's catalogue has of them.
    """
    if not spec.sink.needs_types:
        return
    for plan in plans:
        told = seen.get(plan.topic)
        if told is None or told.columns is None:
            continue
        try:
            _check(told, None if spec.source.tables else spec_of(spec, plan).columns)
        except ChangeError as error:
            raise FormatMismatchError(f"topic {plan.topic}, for sink.format: {spec.sink.format}: {error}") from error


def described_rows(
    spec: FeedSpec, plans: Iterable[SpanPlan], seen: Mapping[str, Seen]
) -> Iterator[tuple[str, dict[str, str], tuple[str, ...]]]:
    """Table, what its columns mean at the sink (Change.semantics), and its key, of those that the newest events show.

    Tables that share a topic, or have computed columns, are left out: what they have is not known from an event.
    """
    for plan in plans:
        told, columns = seen.get(plan.topic), spec_of(spec, plan).columns
        if spec.sink.needs_types and not spec.source.tables and not columns.set and told and told.semantics:
            meaning = _shaping(columns).plain_meaning(told.semantics)
            if meaning is not None:
                yield plan.table, meaning, tuple(columns.target(name) for name in told.key)


def _shaping(columns: ColumnOptions) -> Shaping:
    return Shaping(columns, dict.fromkeys(columns.salt_files, b""))  # no value is masked, so no salt is read


def _check(told: Seen, columns: ColumnOptions | None) -> None:
    """Raise ChangeError. ``columns``: the table's options, if its columns are known."""
    if not is_described(told.semantics or {}):
        forms_of(told.semantics)  # refuses them before a mask, whose result has a type of its own, is added
    if columns is None:
        return
    shaping = _shaping(columns)
    forms_of(shaping.plain_meaning(told.semantics))
    check_names(columns.set)
    if told.key_semantics is None:
        return
    try:
        forms_of(shaping.plain_meaning(told.key_semantics), [columns.target(name) for name in told.key])
    except ChangeError as error:
        raise ChangeError(f"a tombstone, whose key alone describes its columns: {error}") from error
