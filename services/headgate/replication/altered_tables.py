"""A table that lacked columns for a span's last batch is altered, under its claim, before the span is read again."""

import logging

from headgate.agent.core.span.failures import worst
from headgate.agent.core.span.states import Span
from headgate.config.crash_points import CrashPoint, reach
from headgate.eventlog.connection import KafkaConnection
from headgate.replication.feed_parts import FeedParts
from headgate.replication.span_table import FAILURES_BORNE
from headgate.sources.said import tables_said
from headgate.tables.evolution import add_columns

__all__ = ["alter_table"]

_log = logging.getLogger(__name__)


def alter_table(source: KafkaConnection, parts: FeedParts, span: Span) -> None:
    """Add the columns that the span's last batch lacked, if the feed evolves its tables. Raises SinkError, SourceError.

    Where changes may be set aside, those that no alteration makes possible are, once the span has failed often enough.
    """
    spec, plan = parts.spec, span.task.plan
    if not spec.evolves_tables or (spec.may_set_aside and worst(span.failures) >= FAILURES_BORNE):
        return
    added = add_columns(spec, plan, span.lacking, tables_said(source, spec, [plan]))
    reach(CrashPoint.ALTERED)
    if added:
        _log.info("span %s: added %s to table %s", span.id, ", ".join(added), plan.table)
