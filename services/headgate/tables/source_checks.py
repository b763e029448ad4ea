"""What the source's catalogue has against a feed's tables, when the feed is created and when they join it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from headgate.config.feed import FeedSpec
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table
from headgate.sinks.contract import SinkRefusedError, TableShape
from headgate.sources.database import as_source_errors, source_target
from headgate.sources.preview import Seen
from headgate.sources.table_names import source_table
from headgate.sources.table_options import pattern_of, spec_of
from headgate.tables.catalogues import Catalogue, open_catalogue
from headgate.tables.generated_columns import why_stale
from headgate.tables.missing import Said
from headgate.tables.row_keys import RowKey

__all__ = ["check_source_tables"]


def check_source_tables(
    spec: FeedSpec,
    plans: Sequence[SpanPlan],
    said: Said,
    seen: Mapping[str, Seen],
    shapes: Mapping[str, TableShape],
    *,
    known: Collection[str] = (),
) -> None:
    """Raise SinkRefusedError where changes would not find their row at the sink, or leave former values there.

    ``seen``: topic → what its newest records show. ``shapes``: the tables that the sink has. ``known``: tables that the
    feed has already, which have been through the connector's snapshot. Raises SourceError.
    """
    judged = [plan for plan in plans if _is_judged(spec_of(spec, plan), shapes.get(plan.table))]
    if spec.source.database is None or not judged:
        return
    reasons: list[str] = []
    with _source(spec) as source:
        for plan in judged:
            name = source_table(spec, plan.table, plan.topic, has=source.has, said=said)
            definition = None if name is None else source.definition(name)
            if name is None or definition is None:
                continue  # whatever needs the definition reports that
            own, shape = spec_of(spec, plan), shapes.get(plan.table)
            why = None if normal_table(plan.table) in known else why_stale(own, name, definition, shape)
            if why is None and _is_found_by_key(own):
                records = () if spec.source.tables or plan.topic not in seen else seen[plan.topic].key
                key = RowKey(own, plan, definition, records, shape)
                if key.key:
                    why = key.refusal() or key.replica_identity(source.logged_columns(name))
                    why = None if why is None else f"{_option(spec, plan)}table {plan.table}: {why}"
            if why is not None:
                reasons.append(why)
    if reasons:
        raise SinkRefusedError("; ".join(reasons))


def _is_judged(own: FeedSpec, sink: TableShape | None) -> bool:
    """A topic, as a sink, has neither keys nor columns."""
    return _is_found_by_key(own) or sink is None or bool(sink.columns)


def _is_found_by_key(own: FeedSpec) -> bool:
    return own.key is not None or (own.sink.keyless != "append" and own.sink.finds_rows)


@contextmanager
def _source(spec: FeedSpec) -> Iterator[Catalogue]:
    assert spec.source.database is not None  # noqa: S101 - the caller has looked
    with as_source_errors(), open_catalogue(source_target(spec.source.database)) as source:
        yield source


def _option(spec: FeedSpec, plan: SpanPlan) -> str:
    return "" if spec_of(spec, plan).key is None else f"tables.{pattern_of(spec, plan)}.key: "
