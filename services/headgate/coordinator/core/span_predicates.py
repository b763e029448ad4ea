"""Predicates on a span's record that indexes, drafts and schedulers evaluate at every change."""

from headgate.records.control import (
    Assignment,
    FeedRecorded,
    ReplicationState,
    SpanDispatched,
    TaskReported,
    WantedState,
)
from headgate.records.error_codes import NO_ERRORS
from headgate.records.spans import paused_table


def is_to_run(feed: FeedRecorded, span: str) -> bool:
    """The feed runs, and the table of ``span`` is not paused: a span that it plans needs an agent."""
    return feed.wanted is WantedState.RUNNING and paused_table(feed, span) is None


def is_open(record: SpanDispatched | None) -> bool:
    """An agent may still write the span: it was dispatched once and is not sealed."""
    return record is not None and not (record.state is ReplicationState.ABSENT and record.sealed)


def is_moving(record: SpanDispatched | None) -> bool:
    """The span is on its way from one agent to another."""
    return record is not None and record.secondary is not None


def is_broken(record: SpanDispatched | None) -> bool:
    """The span has failed and does not replicate again yet."""
    if record is None or not record.failures:
        return False
    return record.state in (ReplicationState.ABSENT, ReplicationState.COMMIT, ReplicationState.REMOVING)


def is_failing(record: SpanDispatched | None) -> bool:
    """The span has failed, and has written nothing since."""
    return record is not None and record.failures > 0


def is_erring(record: SpanDispatched | None, word: TaskReported | None) -> bool:
    """The span counts as replicating, but its agent reports an error and retries by itself.

    ``word`` is the newest report of the record's primary, under any epoch.
    """
    if record is None or record.primary is None:
        return False
    if record.state not in (ReplicationState.REPLICATING, ReplicationState.PREPARE):
        return False
    has_error = word is not None and word.error_code is not None and word.error_code not in NO_ERRORS
    return word is not None and has_error and is_word_of(record, word)


def is_word_of(record: SpanDispatched, word: TaskReported) -> bool:
    """The report is about the assignment of the record's primary, not about an earlier one."""
    return record.primary is not None and (word.epoch, word.feed_id) == (record.primary.epoch, record.feed_id)


def takes_agent(record: SpanDispatched | None, *, is_wanted: bool) -> bool:
    """No agent has the span and one should: to run it, or, orphaned in removing, to close it."""
    if record is None:
        return is_wanted
    if record.primary is not None:
        return False
    return record.state is ReplicationState.REMOVING or (is_wanted and record.state is ReplicationState.ABSENT)


def is_starting(record: SpanDispatched, role: Assignment) -> bool:
    """The role's holder is opening the span: the work that is limited per agent."""
    if role is record.secondary:
        return True
    return record.state is ReplicationState.COMMIT and record.secondary is None
