"""Checks a span's table before it is claimed, and creates it if the feed creates tables."""

from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.replication.feed_parts import FeedParts
from headgate.sinks.contract import Claim, SinkRefusedError
from headgate.sinks.preparing import Preparing
from headgate.sinks.untouched import Untouched
from headgate.sources.event_schemas import event_schemas
from headgate.sources.said import tables_said
from headgate.sources.topics import present_with
from headgate.tables.creation import create_missing
from headgate.tables.missing import plan_missing

__all__ = ["check_table"]


def check_table(source: KafkaConnection, parts: FeedParts, plan: SpanPlan, claim: Claim) -> None:
    """Raise SinkError unless the table can be written. If it is missing and the feed creates tables, create it first.

    A table to which the feed has written is not created again: an empty one would lack those rows. Raises SourceError.
    """
    if isinstance(parts.sink, Preparing):
        parts.sink.prepare(claim, present_with(source, {claim.topic}).get(claim.topic, len(claim.start)))
    try:
        parts.sink.check([claim.table])
    except SinkRefusedError as refused:
        if not _created(source, parts, plan, claim, refused):
            raise
        parts.sink.check([claim.table])


def _created(
    source: KafkaConnection, parts: FeedParts, plan: SpanPlan, claim: Claim, refused: SinkRefusedError
) -> bool:
    """Whether the table was missing and exists now."""
    spec = parts.spec
    if not spec.creates_tables or not isinstance(parts.sink, Untouched):
        return False

    said, described = tables_said(source, spec, [plan]), event_schemas(source, spec, [plan])
    if not parts.sink.is_new(claim):
        if claim.table in plan_missing(spec, [plan], said, described).lacking:
            raise SinkRefusedError(
                f"{refused}. Headgate has written to it before and does not re-create it, because those rows "
                "would be missing. Restore the table, or pause the feed and run `headgate feed resume "
                f"{claim.identity.feed} --from earliest`: it then creates the table and applies all changes of "
                "the topic"
            ) from refused
        return False
    return create_missing(spec, plan, said, described)
