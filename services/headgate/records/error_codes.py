"""What can be wrong with a table: every code, whether trying again can help, what it means and what to do.

A code stands on the log (TaskReported, FeedRecorded) and in people's runbooks, so it never changes its meaning. Whoever
raises an error says its code and whether it is retryable there; this table must say the same, and
docs/error-codes.md shows it (both tested). Errors of the log itself end a role, are no table's, and have exit codes.
"""

from enum import StrEnum
from typing import Final

import msgspec

__all__ = [
    "COPY_FAILED", "ERROR_CODES", "MEMORY_SHORT", "PARTITIONS_GROWN", "SINK_SLOW", "ErrorCode", "Stage",
    "error_code_of",
]  # fmt: skip

PARTITIONS_GROWN: Final = "source_partitions_grown"
"""The one code that stops a whole feed permanently (coordinator/core/feeds/discovery.py)."""

COPY_FAILED: Final = "copy_failed"
"""The rows of a resync_table could not be copied. The request fails, and the table goes on without it."""

MEMORY_SHORT: Final = "agent_memory_short"
"""Of tables that are written all the same, only more slowly."""

SINK_SLOW: Final = "sink_slow"
"""Of tables whose call or batch may still be answered."""


class Stage(StrEnum):
    """Where on its way a table is held up."""

    SOURCE = "source"
    DECODE = "decode"
    SINK = "sink"
    SCHEDULING = "scheduling"
    AGENT_MISSING = "agent missing"
    BARRIER = "barrier"
    PAUSED = "paused"


class ErrorCode(msgspec.Struct, frozen=True):
    """One row of the table."""

    code: str
    stage: Stage
    retryable: bool
    meaning: str
    advice: str


_ROWS: Final = (
    ErrorCode(
        "source",
        Stage.SOURCE,
        False,
        "the source cannot be read",
        "the message says what; see the broker",
    ),
    ErrorCode(
        "source_unreachable",
        Stage.SOURCE,
        True,
        "the source's broker does not answer",
        "is it up, and reachable from the agent?",
    ),
    ErrorCode(
        PARTITIONS_GROWN,
        Stage.SOURCE,
        False,
        "a source topic has more partitions than when the feed began: the order of a key's changes is lost",
        "let the source write to a new topic, copy the table afresh, make the feed again",
    ),
    ErrorCode(
        "source_format",
        Stage.SOURCE,
        False,
        "the newest records of a topic are in another format than the feed's",
        "set source.format to the format that the message names",
    ),
    ErrorCode(
        "source_topic_missing",
        Stage.SOURCE,
        True,
        "a source topic does not exist",
        "create it, let its connector create it, or correct `source.topics`",
    ),
    ErrorCode(
        "source_topic_replaced",
        Stage.SOURCE,
        False,
        "a source topic was deleted and re-created, so the known offsets belong to the old topic",
        "`headgate feed pause`, then `headgate feed resume --from earliest`; or a new feed after a fresh copy",
    ),
    ErrorCode(
        "source_table_clash",
        Stage.SOURCE,
        False,
        "two topics, or two of `source.tables`, go to one table",
        "put `{schema}`, `{table}` or `{topic}` into `sink.table`, or split the feed",
    ),
    ErrorCode(
        "source_table_name",
        Stage.SOURCE,
        False,
        "no table's name can be made of a topic's",
        "correct `sink.table`",
    ),
    ErrorCode(
        "source_database",
        Stage.SOURCE,
        False,
        "the source database (`source.database`) cannot be read, or is not the one that the changes come from",
        "do what the message says: correct `source.database`, its password file or its rights",
    ),
    ErrorCode(
        "source_offset_expired",
        Stage.SOURCE,
        False,
        "changes not applied yet have been deleted from the topic",
        "copy the table afresh, make the feed again, and give the topic a longer retention",
    ),
    ErrorCode(
        "source_start_in_future",
        Stage.SOURCE,
        False,
        "a time to start at that has not come yet",
        "take an earlier one, or `latest`",
    ),
    ErrorCode(
        "source_start_partitions",
        Stage.SOURCE,
        False,
        "`source.start_offsets` names others than the topic's partitions",
        "give an offset for each partition of the topic",
    ),
    ErrorCode(
        "change_log_missing",
        Stage.SOURCE,
        False,
        "the change log in `source.change_log` does not exist",
        "`headgate generation create`, or correct the option",
    ),
    ErrorCode(
        "change_log_unavailable",
        Stage.SOURCE,
        True,
        "the topic `generation` cannot be read, or does not name the feed among its readers yet",
        "the message says which; a coordinator of the feed's shard must be running",
    ),
    ErrorCode(
        "change_log_gap",
        Stage.SOURCE,
        False,
        "a stream of the change log was retired before the feed had read it: the order of what is left is not known",
        "copy the table afresh and make the feed again",
    ),
    ErrorCode(
        "source_is_change_log",
        Stage.SOURCE,
        False,
        "a topic of the feed is a change log's, whose keys move between its partitions",
        "name it by `source.change_log`",
    ),
    ErrorCode(
        "source_transactions",
        Stage.SOURCE,
        False,
        "what `source.transaction_topic` names cannot say to which time the feed's tables are complete",
        "the message says why; correct the option, or leave it out",
    ),
    ErrorCode(
        "target_before_snapshot",
        Stage.SOURCE,
        False,
        "the table's changes begin with a snapshot that was taken after `source.target_ts`",
        "take a later target",
    ),
    ErrorCode(
        "lane_not_started",
        Stage.SOURCE,
        True,
        "the Spark query that reads the topics does not start",
        "see the agent's log; memory and free space of the agent",
    ),
    ErrorCode(
        "lane_lost",
        Stage.SOURCE,
        True,
        "the Spark query that reads the topics has ended",
        "it is started again; if it keeps ending, its error has the cause: memory, a key or file that Java cannot "
        "open, an executor that lacks something",
    ),
    ErrorCode(
        MEMORY_SHORT,
        Stage.SOURCE,
        True,
        "the agent's Spark JVM has run out of memory, and reads its backlog in small portions since",
        "nothing, if it happens once: the portions grow step by step; else give the JVM more memory "
        "(HEADGATE_SPARK__MEMORY), or give the feed a smaller batch_rows_max",
    ),
    ErrorCode(
        "feed_spec",
        Stage.SOURCE,
        False,
        "the feed's description cannot be read by this agent",
        "agents of an older version? upgrade them, then `headgate feed resume`",
    ),
    ErrorCode(
        "change_undecodable",
        Stage.DECODE,
        False,
        "a record is no change of the feed's format",
        "the message names topic, partition and offset: is `source.format` right?",
    ),
    ErrorCode(
        "registry_unavailable",
        Stage.DECODE,
        True,
        "the schema registry does not answer, refuses access, or does not know an id yet",
        "is it up, and reachable from the agent? are `source.registry`'s url, user, password and CA right?",
    ),
    ErrorCode(
        "internal",
        Stage.DECODE,
        False,
        "an error nobody expected, in reading, decoding or applying",
        "a bug: report it with the agent's log",
    ),
    ErrorCode(
        "sink",
        Stage.SINK,
        False,
        "the sink cannot do what was asked",
        "the message says what",
    ),
    ErrorCode(
        "sink_fenced",
        Stage.SINK,
        False,
        "another assignment has claimed the table: this one is over",
        "nothing: the owner gives the table out again under a higher epoch",
    ),
    ErrorCode(
        "sink_moved",
        Stage.SINK,
        True,
        "the sink's position is not where this assignment left it, or another partition told it another table",
        "nothing: it goes on from the sink's",
    ),
    ErrorCode(
        "sink_conflict",
        Stage.SINK,
        False,
        "another cluster, another feed or an epoch unknown to the log holds the table",
        "find out who writes it; end that, then `headgate feed resume`",
    ),
    ErrorCode(
        "sink_refused",
        Stage.SINK,
        False,
        "the sink cannot take the table: missing, without key, without rights, or its user cannot log in",
        "do what the message says: the table is tried again once a minute, by another agent first, or at once by "
        "`headgate feed resume`",
    ),
    ErrorCode(
        COPY_FAILED,
        Stage.SINK,
        False,
        "rows that were asked for by `headgate table resync` or `headgate verify --repair` could not be copied; all "
        "of them were written, or none",
        "the message says why; the table resumes by itself, without the copy",
    ),
    ErrorCode(
        "rows_refused",
        Stage.SINK,
        False,
        "the sink does not take the copied rows",
        "the message says why; it is reported as `copy_failed`",
    ),
    ErrorCode(
        "sink_column_missing",
        Stage.SINK,
        True,
        "the changes have a column that the sink table has not: it was added, or renamed, at the source first",
        "make the same change at the sink, as the message says: the table goes on by itself (after half an hour of "
        "waiting: `headgate feed resume`). With `sink.tables: evolve` Headgate adds the column where it can",
    ),
    ErrorCode(
        "sink_unavailable",
        Stage.SINK,
        True,
        "the sink does not answer, or has ended the session",
        "is it up, and reachable from the agent?",
    ),
    ErrorCode(
        SINK_SLOW,
        Stage.SINK,
        True,
        "the sink has not answered a call for some seconds: it is busy, waits for a lock, or does not answer at all",
        "the message names the server. Without an answer the table is reported as `sink_unavailable` after 10 to 41 s",
    ),
    ErrorCode(
        "value_refused",
        Stage.SINK,
        False,
        "the sink does not take a change as it is: a value, a key, or a row that a trigger skips",
        "the message names table, column and offset, and what to do about that change; then `headgate feed resume`. To "
        "set that record aside: `headgate feed skip`. To set all such changes aside: `on_bad_change: quarantine`",
    ),
    ErrorCode(
        "constraint_violated",
        Stage.SINK,
        True,
        "a rule over several rows or tables refuses a change, or an update lacks large columns of a row that the sink "
        "does not have",
        "it may heal with another table's change, or with the row's delete, where both were sent again; if it stays, "
        "the sink has rows or rules the source has not, or has lost a row",
    ),
    ErrorCode(
        "quarantine_full",
        Stage.SINK,
        False,
        "more changes of the table are bad than the feed may set aside in an hour",
        "see `headgate deadletter list`: is it the table that has changed? then `headgate feed resume`",
    ),
    ErrorCode(
        "quarantine_unavailable",
        Stage.SINK,
        True,
        "a bad change cannot be written to the deadletter topic",
        "is the broker up? may the agent write that topic, and is the change below its max.message.bytes?",
    ),
    ErrorCode(
        "start_timeout",
        Stage.SCHEDULING,
        True,
        "an agent was given the table and has not begun to write it in time, nor said why",
        "see the agent's log; if it hangs, end it: its tables go elsewhere after a lease",
    ),
    ErrorCode(
        "drain_timeout",
        Stage.SCHEDULING,
        True,
        "an agent was told to hand the table over, or to close it, and has not in time, nor said why",
        "nothing: another claims it, and the sink fences the agent; see the agent's log, and if it hangs, end it",
    ),
)

ERROR_CODES: Final = {row.code: row for row in _ROWS}
"""By code."""

_UNKNOWN: Final = ErrorCode("unknown", Stage.SINK, False, "a code of another version", "see the agent's log")


def error_code_of(last_error: str | None) -> ErrorCode:
    """The row of a record's ``last_error``, which is ``<code>: <text>``; one that says so if the code is not ours."""
    return ERROR_CODES.get((last_error or "").partition(":")[0], _UNKNOWN)
