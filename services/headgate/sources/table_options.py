"""The options of a feed's tables: looked up by a table's plan, and checked when the feed is accepted."""

from collections.abc import Iterable

from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.config.table_options import patterns_of
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table, show_identifier
from headgate.records.name_lists import shown_names
from headgate.sources.topics import source_tables

__all__ = ["by_session_options", "check_patterns", "pattern_of", "spec_of"]


def spec_of(spec: FeedSpec, plan: SpanPlan) -> FeedSpec:
    """The feed as it is for the table of ``plan``, with the table's own options. Raises FeedSpecError."""
    return spec.for_table(plan.topic, source_tables(spec).get(normal_table(plan.table))) if spec.tables else spec


def pattern_of(spec: FeedSpec, plan: SpanPlan) -> str | None:
    """The pattern that the table of ``plan`` has its options from, None if it has the feed's. Raises FeedSpecError."""
    return spec.pattern_of(plan.topic, source_tables(spec).get(normal_table(plan.table))) if spec.tables else None


def by_session_options(spec: FeedSpec, plans: Iterable[SpanPlan]) -> list[tuple[FeedSpec, list[SpanPlan]]]:
    """The tables that can share a session at the sink, and the feed as it is for these sessions.

    First those with the feed's own options, even if there are none. Raises FeedSpecError.
    """
    groups: dict[tuple[str, str], tuple[FeedSpec, list[SpanPlan]]] = {spec.sink.session_options: (spec, [])}
    for plan in plans:
        own = spec_of(spec, plan)
        groups.setdefault(own.sink.session_options, (own, []))[1].append(plan)
    return list(groups.values())


def check_patterns(spec: FeedSpec, plans: Iterable[SpanPlan]) -> tuple[str, ...]:
    """Warnings of patterns in ``tables`` that match no table yet.

    Raises FeedSpecError if none can come, because the feed lists its topics, and where two patterns claim a table.
    """
    own = source_tables(spec)
    names = {spec.name_of(plan.topic, own.get(normal_table(plan.table))) for plan in plans}
    unused = [pattern.text for pattern in patterns_of(spec.tables) if not any(pattern.matches(name) for name in names)]
    if not unused:
        return ()
    known = shown_names(sorted(map(show_identifier, names))) or "none so far"
    text = f"tables: no table matches {shown_names(unused)}. The feed's tables, as the source names them: {known}"
    if spec.source.topic_pattern is None:
        raise FeedSpecError(f"{text}. Correct the pattern, or remove it")
    return (f"warning: {text}. It applies to tables that join later",)
