"""The meaning of each exit code of ``headgate``, in one table; docs/exit-codes.md is made from it.

Scripts and supervisors decide by these numbers, so a number never changes its meaning. Every error that can be
expected has one; a traceback (status 1) is a bug in Headgate.

The table names the classes of errors and imports none of them: every command needs the table, and the classes are in
parts that take a second to import together.
"""

from typing import Final

import msgspec

from headgate.app.command_error import CommandError, ExitCode
from headgate.records.refusals import NOT_FOUND, code_in

__all__ = ["MEANINGS", "CommandError", "ExitCode", "Meaning", "exit_code_of", "exit_code_of_refusal"]


class Meaning(msgspec.Struct, frozen=True):
    """One row: the code's meaning and what to do, in Markdown, and the errors that end a command with it.

    ``errors``: names of exceptions, ``module:class``, each standing for those derived from it that are in no other
    row. ``refusals``: codes that the reason of a refused request begins with (records/refusals.py).
    """

    says: str
    do: str
    errors: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


MEANINGS: Final[dict[ExitCode, Meaning]] = {
    ExitCode.DONE: Meaning("the command succeeded, and every check passed", ""),
    ExitCode.BUG: Meaning("an unexpected error, with its traceback", "report it"),
    ExitCode.USAGE: Meaning("a command, option or argument does not exist", "`headgate COMMAND --help`"),
    ExitCode.SETTING: Meaning(
        "a `HEADGATE_` variable or a property is unknown or has a bad value",
        "the message names the nearest; docs/configuration.md",
        errors=(
            "headgate.config.settings:SettingsError",
            "headgate.eventlog.connection:PropertyRefusedError",
        ),
    ),
    ExitCode.FEED_SPEC: Meaning(
        "a feed's file or a name in it cannot be used: unknown option, bad value",
        "the message names the option",
        errors=(
            "headgate.config.feed:FeedSpecError",
            "headgate.records.names:InvalidNameError",
        ),
        refusals=("feed_spec",),
    ),
    ExitCode.PORT_TAKEN: Meaning(
        "the HTTP port is in use",
        "`--http-port`, or 0 for any",
        errors=(
            "headgate.observability.probes:PortTakenError",
            "headgate.provisioning.errors:PortTakenError",
        ),
    ),
    ExitCode.NO_JAVA: Meaning(
        "no Java 17 or later was found, which Spark needs",
        "install one, or set `JAVA_HOME`",
        errors=("headgate.provisioning.errors:NoJavaError",),
    ),
    ExitCode.EMBEDDED: Meaning(
        "a server that Headgate brings along cannot be started",
        "the message names it and the reason",
        errors=("headgate.provisioning.errors:EmbeddedError",),
    ),
    ExitCode.SPARK: Meaning(
        "Spark does not start", "the message quotes it; `HEADGATE_SPARK__MASTER`, memory, free space"
    ),
    ExitCode.BROKER_UNREACHABLE: Meaning(
        "no Kafka broker answers",
        "is it up? `--bootstrap`, `HEADGATE_BOOTSTRAP`",
        errors=("headgate.eventlog.connection:BrokerUnreachableError",),
    ),
    ExitCode.TOPICS_MISSING: Meaning(
        "the control topics do not exist",
        "`headgate topic create`, or `--create-topics`",
        errors=("headgate.eventlog.topics:TopicMissingError",),
    ),
    ExitCode.TOPICS_WRONG: Meaning(
        "a control topic is not compacted or has another number of partitions",
        "the message names the setting; `HEADGATE_SHARDS`",
        errors=(
            "headgate.eventlog.topics:TopicNotCompactedError",
            "headgate.eventlog.topics:TopicPartitionsError",
            "headgate.eventlog.topics:TopicSettingError",
        ),
    ),
    ExitCode.NEWER_SCHEMA: Meaning(
        "the control topics contain records of a newer Headgate",
        "upgrade this installation; nothing was misread",
        errors=("headgate.eventlog.log:NewerSchemaError",),
    ),
    ExitCode.LOG: Meaning(
        "Kafka refused or failed an operation",
        "the message has the reason",
        errors=(
            "headgate.eventlog.log:LogError",
            "headgate.runtime.role:RoleEndedError",
        ),
    ),
    ExitCode.SINK_REFUSED: Meaning(
        "the sink refuses the feed: a table is missing, has no key or no rights, or belongs to another feed",
        "the message names the table and what to do",
        errors=("headgate.sinks.contract:SinkError",),
        refusals=(
            "sink",
            "schema_refused",
            "sink_column_missing",
            "sink_conflict",
            "sink_fenced",
            "sink_moved",
            "sink_refused",
            "value_refused",
            "constraint_violated",
            "copy_failed",
            "resync_needed",
            "rows_refused",
        ),
    ),
    ExitCode.SINK_UNAVAILABLE: Meaning(
        "the sink does not answer",
        "is it up? the feed's `sink.dsn`",
        errors=("headgate.sinks.contract:SinkUnavailableError",),
        refusals=("sink_unavailable",),
    ),
    ExitCode.SOURCE: Meaning(
        "a source topic is missing, unread changes were deleted, or the schema registry or the source "
        "database cannot be used",
        "the message names it",
        errors=(
            "headgate.sources.offsets:SourceError",
            "headgate.sinks.contract:TopicReplacedError",
            "headgate.formats.decoding:SchemasUnavailableError",
            "headgate.app.schema_registration:RegistrationError",
        ),
        refusals=(
            "source",
            "source_unreachable",
            "source_partitions_grown",
            "source_topic_missing",
            "source_topic_replaced",
            "source_table_clash",
            "source_table_name",
            "source_format",
            "snapshot_refused",
            "source_database",
            "source_offset_expired",
            "source_start_in_future",
            "source_start_partitions",
            "source_transactions",
            "source_is_change_log",
            "change_log_missing",
            "change_log_unavailable",
            "change_log_gap",
            "target_before_snapshot",
            "registry_unavailable",
        ),
    ),
    ExitCode.DATABASE: Meaning(
        "a database given to a command cannot be read",
        "its address, password file and rights",
        errors=("headgate.databases.errors:DatabaseError",),
    ),
    ExitCode.REQUEST_REFUSED: Meaning(
        "the owner refused a request for a reason without its own code; nothing was changed",
        "the reason is printed",
        errors=("headgate.runtime.requests:RequestRefusedError",),
    ),
    ExitCode.REQUEST_TIMED_OUT: Meaning(
        "no outcome in time: no owner, or the work takes longer",
        "the message names the cause; `--timeout`",
        errors=("headgate.runtime.requests:RequestTimedOutError",),
    ),
    ExitCode.REQUEST_FAILED: Meaning(
        "a request was accepted and then failed",
        "the reason is printed",
        errors=("headgate.runtime.requests:RequestFailedError",),
    ),
    ExitCode.NOT_FOUND: Meaning(
        "the feed, table, agent, change log or migration does not exist",
        "the `list` command of its group",
        errors=("headgate.capture.tables:NoTableError",),
        refusals=(NOT_FOUND,),
    ),
    ExitCode.ID_IN_USE: Meaning(
        "another session of the same agent name is alive",
        "`--name`; or wait for its lease to run out",
        errors=("headgate.agent.shell.session:IdInUseError",),
    ),
    ExitCode.NOT_CONFIRMED: Meaning(
        "the command destroys data or cannot be undone, and was not confirmed; nothing was changed",
        "`--yes`; `--dry-run` shows what would be done",
    ),
    ExitCode.DIFFERENCE: Meaning(
        "`verify` found rows that differ, or a check of `demo` or `chaos` failed",
        "they are printed",
    ),
    ExitCode.HELD: Meaning(
        "`why` found that something holds back the feed's checkpoint", "the output names what to do"
    ),
    ExitCode.CHECK_FAILED: Meaning(
        "`source check` or `doctor` found a fault", "the output has the command that fixes it"
    ),
    ExitCode.UNSETTLED: Meaning(
        "`verify` found rows that kept changing, or that connector or feed have not reached, but none known to differ",
        "run it again; a longer `--wait`; `headgate why`",
    ),
    ExitCode.NOT_REPORTED: Meaning(
        "`generation rebalance` has no load to decide by, because no writer of the change log has reported one; "
        "nothing was changed",
        "start the writers, or `--measure-log`",
    ),
    ExitCode.STOPPED_HARD: Meaning(
        "a clean stop took longer than allowed, so it was cut short", "`HEADGATE_SHUTDOWN_SECONDS`"
    ),
    ExitCode.OUTPUT_LOST: Meaning(
        "standard output cannot be written: its disk is full, or it is closed; what the command does may be done",
        "the `list` or `show` command of its group",
    ),
}
"""The one table: commands return by it, and docs/exit-codes.md is made of it."""

_BY_ERROR: Final = {error: code for code, row in MEANINGS.items() for error in row.errors}
_BY_REFUSAL: Final = {refusal: code for code, row in MEANINGS.items() for refusal in row.refusals}


def exit_code_of(error: BaseException) -> ExitCode | None:
    """The code of the nearest class of ``error`` in the table; None for an unexpected error.

    A refusal's code is that of its reason.
    """
    if isinstance(error, CommandError):
        return error.code
    names = (f"{kind.__module__}:{kind.__qualname__}" for kind in type(error).__mro__)
    code = next((_BY_ERROR[name] for name in names if name in _BY_ERROR), None)
    return exit_code_of_refusal(getattr(error, "reason", "")) if code is ExitCode.REQUEST_REFUSED else code


def exit_code_of_refusal(reason: str) -> ExitCode:
    """What a command ends with whose request was refused for ``reason``."""
    return _BY_REFUSAL.get(code_in(reason) or "", ExitCode.REQUEST_REFUSED)
