"""Alters a table that refused a change of a span's last batch, under its claim, before the span is read again."""

import logging
from collections.abc import Sequence
from typing import Final

from headgate.agent.core.span.failures import worst
from headgate.agent.core.span.states import Span
from headgate.config.crash_points import CrashPoint, reach
from headgate.eventlog.connection import KafkaConnection
from headgate.replication.feed_parts import FeedParts
from headgate.replication.span_table import FAILURES_BORNE
from headgate.sinks.contract import ValueRefusedError
from headgate.sources.said import tables_said
from headgate.tables.evolution import StillRefusedError, add_columns, fit_columns

__all__ = ["alter_table"]

TRIES_UNALTERED: Final = 1
"""A value that was refused is tried once more though there is nothing to alter: another agent may have just done it."""

_log = logging.getLogger(__name__)


def alter_table(source: KafkaConnection, parts: FeedParts, span: Span) -> None:
    """Make the table take what the span's last batch was refused for, if the feed evolves its tables.

    Where changes may be set aside, those that no alteration makes possible are, once the span has failed often enough.
    Raises SinkError, SourceError.
    """
    spec, plan = parts.spec, span.task.plan
    is_refused = span.error is not None and span.error[0] == ValueRefusedError.code
    if not spec.evolves_tables or not (span.lacking or is_refused):
        return
    may_set_aside = spec.on_bad_change == "quarantine" or spec.skip
    if may_set_aside and worst(span.failures) >= FAILURES_BORNE:
        return
    said = tables_said(source, spec, [plan])
    if span.lacking:
        _tell(span, add_columns(spec, plan, span.lacking, said))
        return
    fitted = fit_columns(spec, plan, said)
    _tell(span, fitted.statements)
    if not fitted.statements and span.error is not None and worst(span.failures) > TRIES_UNALTERED:
        raise StillRefusedError(". ".join((span.error[1], *fitted.refusals)))


def _tell(span: Span, done: Sequence[str]) -> None:
    reach(CrashPoint.ALTERED)
    if done:
        _log.info("span %s: altered table %s: %s", span.id, span.task.plan.table, "; ".join(done))
