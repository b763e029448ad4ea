"""The error codes of tables: whether a retry can help, the meaning, and what to do.

A code is stored on the log (TaskReported, FeedRecorded) and in people's runbooks, so it never changes its meaning. Code
that raises an error gives its code and whether it is retryable there; this table must agree, and docs/error-codes.md
shows it (both tested). Errors of the log itself end a role, do not belong to a table, and have exit codes.
"""

from enum import StrEnum
from typing import Final

import msgspec

__all__ = [
    "COPYING", "COPYING_CODES", "COPYING_HELD", "COPY_FAILED", "ERROR_CODES",
    "MAINTAINING", "MEMORY_SHORT", "NO_ERRORS", "PARTITIONS_GROWN", "SINK_SLOW", "ErrorCode", "FailureStage",
    "error_code_of",
]  # fmt: skip

PARTITIONS_GROWN: Final = "source_partitions_grown"
"""The one code that stops a whole feed permanently (coordinator/core/feeds/discovery.py)."""

COPY_FAILED: Final = "copy_failed"
"""The rows of a resync_table could not be copied. The request fails, and the table continues without it."""

COPYING: Final = "copying"
"""For tables that are written, and whose rows are copied as well: not an error."""

COPYING_HELD: Final = "copying_held"
"""The same, with an error of the copy or of the table itself."""

COPYING_CODES: Final = frozenset({COPYING, COPYING_HELD})

MAINTAINING: Final = "maintaining"
"""For tables of a lake whose files are compacted, between two batches: not an error."""

NO_ERRORS: Final = frozenset({COPYING, MAINTAINING})
"""Codes of work that holds nothing up for long and ends by itself."""

MEMORY_SHORT: Final = "agent_memory_short"
"""For tables that are still written, only more slowly."""

SINK_SLOW: Final = "sink_slow"
"""For tables whose call or batch may still be answered."""


class FailureStage(StrEnum):
    """Where on its way a table is held up."""

    SOURCE = "source"
    DECODE = "decode"
    SINK = "sink"
    SCHEDULING = "scheduling"
    AGENT_MISSING = "agent missing"
    BARRIER = "barrier"
    COPYING = "copying"
    PAUSED = "paused"


class ErrorCode(msgspec.Struct, frozen=True):
    """One row of the table."""

    code: str
    stage: FailureStage
    retryable: bool
    meaning: str
    advice: str


_ROWS: Final = (
    ErrorCode(
        "source",
        FailureStage.SOURCE,
        False,
        "the source cannot be read",
        "the message has the reason; check the broker",
    ),
    ErrorCode(
        "source_unreachable",
        FailureStage.SOURCE,
        True,
        "the source's broker does not answer",
        "check that it is up, and that the agent reaches it",
    ),
    ErrorCode(
        PARTITIONS_GROWN,
        FailureStage.SOURCE,
        False,
        "a source topic has more partitions than when the feed began: the order of a key's changes is lost",
        "let the source write to a new topic, copy the table again, re-create the feed",
    ),
    ErrorCode(
        "source_format",
        FailureStage.SOURCE,
        False,
        "the newest records of a topic are in another format than the feed's, or their schemas cannot be written in "
        "the sink's",
        "set `source.format` to the format that the message names, or correct what it names",
    ),
    ErrorCode(
        "source_topic_missing",
        FailureStage.SOURCE,
        True,
        "a source topic does not exist",
        "create it, let its connector create it, or correct `source.topics`",
    ),
    ErrorCode(
        "source_topic_replaced",
        FailureStage.SOURCE,
        False,
        "a source topic was deleted and re-created, so the known offsets belong to the old topic",
        "`headgate feed pause`, then `headgate feed resume --from earliest`; or a new feed after a fresh copy",
    ),
    ErrorCode(
        "source_table_clash",
        FailureStage.SOURCE,
        False,
        "two topics, or two of `source.tables`, go to one table",
        "put `{schema}`, `{table}` or `{topic}` into `sink.table`, or keep their rows apart by `into`",
    ),
    ErrorCode(
        "source_table_name",
        FailureStage.SOURCE,
        False,
        "a table's name cannot be derived from a topic's name",
        "correct `sink.table`",
    ),
    ErrorCode(
        "source_database",
        FailureStage.SOURCE,
        False,
        "the source database (`source.database`) cannot be read, or is not the one that the changes come from",
        "follow the message: correct `source.database`, its password file or its rights",
    ),
    ErrorCode(
        "snapshot_refused",
        FailureStage.SOURCE,
        False,
        "`snapshot: initial` cannot copy the rows of some of the feed's tables; nothing was created",
        "the message names each table and its reason; correct that, or set `snapshot: never` for it in `tables`",
    ),
    ErrorCode(
        "source_offset_expired",
        FailureStage.SOURCE,
        False,
        "changes that were not applied yet have been deleted from the topic",
        "copy the table again, re-create the feed, and give the topic a longer retention",
    ),
    ErrorCode(
        "source_start_in_future",
        FailureStage.SOURCE,
        False,
        "the time to start at is in the future",
        "take an earlier one, or `latest`",
    ),
    ErrorCode(
        "source_start_partitions",
        FailureStage.SOURCE,
        False,
        "`source.start_offsets` does not list exactly the topic's partitions",
        "give an offset for each partition of the topic",
    ),
    ErrorCode(
        "change_log_missing",
        FailureStage.SOURCE,
        False,
        "the change log in `source.change_log` does not exist",
        "`headgate generation create`, or correct the option",
    ),
    ErrorCode(
        "change_log_unavailable",
        FailureStage.SOURCE,
        True,
        "the topic `generation` cannot be read, or does not name the feed among its readers yet",
        "the message has the reason; a coordinator of the feed's shard must be running",
    ),
    ErrorCode(
        "change_log_gap",
        FailureStage.SOURCE,
        False,
        "a stream of the change log was retired before the feed had read it, so the order of the "
        "remaining changes is unknown",
        "copy the table again and re-create the feed",
    ),
    ErrorCode(
        "source_is_change_log",
        FailureStage.SOURCE,
        False,
        "a topic of the feed belongs to a change log, whose keys move between partitions",
        "name it by `source.change_log`",
    ),
    ErrorCode(
        "source_transactions",
        FailureStage.SOURCE,
        False,
        "`source.transaction_topic` does not show up to which time the feed's tables are complete",
        "the message has the reason; correct the option, or remove it",
    ),
    ErrorCode(
        "target_before_snapshot",
        FailureStage.SOURCE,
        False,
        "the table's changes begin with a snapshot that was taken after `source.target_ts`",
        "take a later target",
    ),
    ErrorCode(
        "lane_not_started",
        FailureStage.SOURCE,
        True,
        "the Spark query that reads the topics does not start",
        "see the agent's log; memory and free space of the agent",
    ),
    ErrorCode(
        "lane_lost",
        FailureStage.SOURCE,
        True,
        "the Spark query that reads the topics has ended",
        "it is restarted; if it keeps ending, its error has the cause: memory, a key or file that Java "
        "cannot open, an incomplete executor",
    ),
    ErrorCode(
        MEMORY_SHORT,
        FailureStage.SOURCE,
        True,
        "the agent's Spark JVM has run out of memory, and now reads its backlog in small portions",
        "nothing, if it happens once: the portions grow again step by step; otherwise give the JVM more "
        "memory (HEADGATE_SPARK__MEMORY), or lower the feed's batch_rows_max",
    ),
    ErrorCode(
        "feed_spec",
        FailureStage.SOURCE,
        False,
        "the feed's description cannot be read by this agent",
        "agents of an older version? upgrade them, then `headgate feed resume`",
    ),
    ErrorCode(
        "change_undecodable",
        FailureStage.DECODE,
        False,
        "a record is not a change in the feed's format, or not one that the feed's `where` and `columns` fit",
        "the message names topic, partition and offset: are `source.format`, `where` and `columns` right?",
    ),
    ErrorCode(
        "registry_unavailable",
        FailureStage.DECODE,
        True,
        "the schema registry does not answer, refuses access, or does not know an id yet",
        "check that it is up, that the agent reaches it, and `source.registry`'s url, user, password and CA",
    ),
    ErrorCode(
        "mask_salt",
        FailureStage.DECODE,
        True,
        "the file with the salt of a mask (`columns.mask`, sha256) cannot be read, or is empty",
        "put the file into the folder for secrets of every agent and Spark worker; the table continues by itself",
    ),
    ErrorCode(
        "source_types",
        FailureStage.DECODE,
        True,
        "the types of the source's columns cannot be read, which `where` or `columns.set` needs for these events",
        "is `source.database` up, and reachable from agents and Spark workers? may its user see the table?",
    ),
    ErrorCode(
        "internal",
        FailureStage.DECODE,
        False,
        "an unexpected error while reading, decoding or applying",
        "a bug: report it with the agent's log",
    ),
    ErrorCode(
        "sink",
        FailureStage.SINK,
        False,
        "the sink failed or refused an operation",
        "the message has the reason",
    ),
    ErrorCode(
        "sink_fenced",
        FailureStage.SINK,
        False,
        "another assignment has claimed the table, so this one has ended",
        "nothing: the owner assigns the table again under a higher epoch",
    ),
    ErrorCode(
        "sink_moved",
        FailureStage.SINK,
        True,
        "the sink's position is not where this assignment left it, or another partition recorded another table name",
        "nothing: it continues from the sink's position",
    ),
    ErrorCode(
        "sink_conflict",
        FailureStage.SINK,
        False,
        "another cluster, another feed or an unknown epoch has claimed the table, or a lake table is bound to another "
        "ledger",
        "find out what writes it and end that, then `headgate feed resume`",
    ),
    ErrorCode(
        "sink_refused",
        FailureStage.SINK,
        False,
        "the sink refuses the table: it is missing, has no key or no rights, or its user cannot log in",
        "follow the message: the table is retried once a minute, first by another agent",
    ),
    ErrorCode(
        COPY_FAILED,
        FailureStage.SINK,
        False,
        "rows requested with `headgate table resync` or `headgate verify --repair` could not be copied; of rows named "
        "by keys none was written, of a whole table those up to the first that failed",
        "the message has the reason; the table resumes by itself, without the copy",
    ),
    ErrorCode(
        COPYING,
        FailureStage.COPYING,
        True,
        "the whole table is being copied from the source, while its changes are applied (`headgate table resync`)",
        "nothing: it ends by itself, or with `headgate table resync FEED TABLE --cancel`",
    ),
    ErrorCode(
        COPYING_HELD,
        FailureStage.COPYING,
        True,
        "the same, but the copy or the table itself is held up by the error in the message",
        "the message has the reason; both are retried",
    ),
    ErrorCode(
        MAINTAINING,
        FailureStage.SINK,
        True,
        "the sink's table is being maintained: its files are compacted and old versions removed (`sink.maintenance`, "
        "`headgate table optimize`)",
        "nothing: its changes are applied when that is done",
    ),
    ErrorCode(
        "rows_refused",
        FailureStage.SINK,
        False,
        "the sink refuses the copied rows",
        "the message has the reason; it is reported as `copy_failed`",
    ),
    ErrorCode(
        "schema_refused",
        FailureStage.SINK,
        True,
        "the registry of a Kafka sink in Avro rejects the schema that the next changes need: it is not compatible with "
        "the subject's last one, or the registry is read-only. Or it has another id for a schema in use, because it "
        "was emptied or restored",
        "the message has the subject, the reason and what to do: undo the change at the source, keep the column from "
        "the sink with `columns`, relax the compatibility of the values' subject, or restore the registry. The table "
        "continues by itself (after half an hour of waiting: `headgate feed resume`)",
    ),
    ErrorCode(
        "sink_column_missing",
        FailureStage.SINK,
        True,
        "the changes have a column that is missing in the sink's table: it was added or renamed at the source first",
        "make the same change at the sink, with the statement in the message: the table continues by "
        "itself (after half an hour of waiting: `headgate feed resume`). With `sink.tables: evolve` "
        "Headgate adds the column if it can",
    ),
    ErrorCode(
        "resync_needed",
        FailureStage.SINK,
        True,
        "with `sink.tables: evolve`: rows of the sink lack values that no change will bring. A column was dropped at "
        "the sink, or at the source it was dropped and added again, or got the name of another one, or a type that may "
        "have changed its values",
        "`headgate table resync FEED TABLE` adds the column if it is missing, and copies all rows. The table "
        "still replicates",
    ),
    ErrorCode(
        "sink_unavailable",
        FailureStage.SINK,
        True,
        "the sink does not answer, or has ended the session",
        "check that it is up, and that the agent reaches it",
    ),
    ErrorCode(
        SINK_SLOW,
        FailureStage.SINK,
        True,
        "the sink has not answered a call for some seconds: it is busy, waits for a lock, or does not answer at all",
        "the message names the server. Without an answer the table is reported as `sink_unavailable` after 10 to 41 s",
    ),
    ErrorCode(
        "value_refused",
        FailureStage.SINK,
        False,
        "the sink refuses a change: a value, a key, or a row that a trigger skips",
        "the message names table, column and offset, and what to do about that change; then `headgate feed resume`. To "
        "set that record aside: `headgate feed skip`. To set all such changes aside: `on_bad_change: quarantine`",
    ),
    ErrorCode(
        "constraint_violated",
        FailureStage.SINK,
        True,
        "a constraint over several rows or tables refuses a change, or an update omits large columns of "
        "a row that the sink does not have",
        "another table's change, or the row's delete if both were sent again, may resolve it; if it "
        "stays, the sink has rows or constraints that the source does not have, or has lost a row",
    ),
    ErrorCode(
        "quarantine_full",
        FailureStage.SINK,
        False,
        "more changes of the table are bad than the feed may set aside in an hour",
        "check `headgate deadletter list`: has the table itself changed? then `headgate feed resume`",
    ),
    ErrorCode(
        "quarantine_unavailable",
        FailureStage.SINK,
        True,
        "a bad change cannot be written to the deadletter topic",
        "is the broker up? may the agent write that topic, and is the change below its max.message.bytes?",
    ),
    ErrorCode(
        "start_timeout",
        FailureStage.SCHEDULING,
        True,
        "the assigned agent has not started to write the table in time, and has not reported a reason",
        "check the agent's log; if it hangs, end it: its tables move to other agents after a lease",
    ),
    ErrorCode(
        "drain_timeout",
        FailureStage.SCHEDULING,
        True,
        "the agent has not handed over or closed the table in time, and has not reported a reason",
        "nothing: another agent claims it, and the sink fences this one; check the agent's log, and if "
        "it hangs, end it",
    ),
)

ERROR_CODES: Final = {row.code: row for row in _ROWS}
"""By code."""

_UNKNOWN: Final = ErrorCode("unknown", FailureStage.SINK, False, "a code of another version", "see the agent's log")


def error_code_of(last_error: str | None) -> ErrorCode:
    """The row of a record's ``last_error``, which is ``<code>: <text>``; a generic one if the code is unknown."""
    return ERROR_CODES.get((last_error or "").partition(":")[0], _UNKNOWN)
