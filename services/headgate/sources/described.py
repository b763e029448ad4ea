"""Checks the schemas of a topic's newest events, for a sink that writes them on as schemas of its own."""

from collections.abc import Iterable, Mapping

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.formats.avro_rows import forms_of
from headgate.formats.change import ChangeError
from headgate.formats.expressions.evaluation import is_described
from headgate.formats.shaping import Shaping
from headgate.records.control import SpanPlan
from headgate.sources.preview import FormatMismatchError, Seen
from headgate.sources.table_options import spec_of

__all__ = ["check_described"]


def check_described(spec: FeedSpec, plans: Iterable[SpanPlan], seen: Mapping[str, Seen]) -> None:
    """Raise FormatMismatchError for a table whose newest event has no schema, or one that cannot be written.

    If one topic has several tables, columns are not known one by one, so only whether there is a schema is checked.
    """
    if not spec.sink.needs_types:
        return
    for plan in plans:
        told = seen.get(plan.topic)
        if told is None or told.columns is None:
            continue
        try:
            if spec.source.tables and is_described(told.semantics or {}):
                continue
            forms_of(_shaped(spec_of(spec, plan).columns, told.semantics))
        except ChangeError as error:
            raise FormatMismatchError(f"topic {plan.topic}, for sink.format: {spec.sink.format}: {error}") from error


def _shaped(columns: ColumnOptions, semantics: dict[str, str] | None) -> dict[str, str] | None:
    """What the feed's options make of it. No value is masked, so no salt is read."""
    return Shaping(columns, dict.fromkeys(columns.salt_files, b"")).meaning(semantics)
