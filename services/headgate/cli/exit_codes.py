"""What the ``headgate`` command's exit status says, in one table; ``docs/exit-codes.md`` shows the same (tested).

Scripts and supervisors decide by these numbers, so a number never changes its meaning. Every error that can be
expected has one; a traceback (status 1) is a bug of ours.
"""

from enum import IntEnum
from typing import Final

__all__ = ["MEANINGS", "CommandError", "ExitCode"]


class ExitCode(IntEnum):
    """Exit status of a command."""

    DONE = 0
    BUG = 1
    USAGE = 2
    SETTING = 10
    FEED_SPEC = 11
    PORT_TAKEN = 12
    NO_JAVA = 13
    EMBEDDED = 14
    SPARK = 15
    BROKER_UNREACHABLE = 20
    TOPICS_MISSING = 21
    TOPICS_WRONG = 22
    NEWER_SCHEMA = 23
    LOG = 24
    SINK_REFUSED = 30
    SINK_UNAVAILABLE = 31
    SOURCE = 32
    DATABASE = 33
    REQUEST_REFUSED = 40
    REQUEST_TIMED_OUT = 41
    REQUEST_FAILED = 42
    NOT_FOUND = 43
    ID_IN_USE = 44
    DIFFERENCE = 50
    HELD = 51
    STOPPED_HARD = 60


MEANINGS: Final[dict[ExitCode, tuple[str, str]]] = {
    ExitCode.DONE: ("what was asked is done, what was checked holds", ""),
    ExitCode.BUG: ("an error nobody expected, with its traceback", "report it"),
    ExitCode.USAGE: ("a command, option or argument does not exist", "`headgate COMMAND --help`"),
    ExitCode.SETTING: (
        "a `HEADGATE_` variable or a property is unknown or has a bad value",
        "the message names the nearest; docs/configuration.md",
    ),
    ExitCode.FEED_SPEC: (
        "a feed's file or a name in it cannot be used: unknown option, bad value",
        "the message names the option",
    ),
    ExitCode.PORT_TAKEN: ("the HTTP port is in use", "`--http-port`, or 0 for any"),
    ExitCode.NO_JAVA: ("no Java 17 or later was found, which Spark needs", "install one, or set `JAVA_HOME`"),
    ExitCode.EMBEDDED: ("a server that Headgate brings along cannot be started", "the message says which and why"),
    ExitCode.SPARK: ("Spark does not start", "the message quotes it; `HEADGATE_SPARK__MASTER`, memory, free space"),
    ExitCode.BROKER_UNREACHABLE: ("no Kafka broker answers", "is it up? `--bootstrap`, `HEADGATE_BOOTSTRAP`"),
    ExitCode.TOPICS_MISSING: ("the control topics do not exist", "`headgate topic create`, or `--create-topics`"),
    ExitCode.TOPICS_WRONG: (
        "a control topic is not compacted or has another number of partitions",
        "the message says which setting; `HEADGATE_SHARDS`",
    ),
    ExitCode.NEWER_SCHEMA: ("the log holds records of a newer Headgate", "upgrade this one; nothing was misread"),
    ExitCode.LOG: ("the log cannot do what was asked", "the message says what"),
    ExitCode.SINK_REFUSED: (
        "the sink cannot take the feed: table missing, no key, no rights, held by another feed",
        "the message says which table and what to do",
    ),
    ExitCode.SINK_UNAVAILABLE: ("the sink does not answer", "is it up? the feed's `sink.dsn`"),
    ExitCode.SOURCE: ("a source topic is missing, or what is still to be read was deleted", "the message says which"),
    ExitCode.DATABASE: ("a database given to `verify` cannot be read", "its DSN and rights"),
    ExitCode.REQUEST_REFUSED: ("the owner refused a request; nothing was changed", "the reason is printed"),
    ExitCode.REQUEST_TIMED_OUT: (
        "no outcome in time: no owner, or the work takes longer",
        "the message says which; `--timeout`",
    ),
    ExitCode.REQUEST_FAILED: ("a request was accepted and then failed", "the reason is printed"),
    ExitCode.NOT_FOUND: ("no such feed, table or agent", "`headgate feed list`"),
    ExitCode.ID_IN_USE: (
        "another session of the same agent name is alive",
        "`--name`; or wait for its lease to run out",
    ),
    ExitCode.DIFFERENCE: (
        "`verify` found rows that differ, or `demo` or `chaos` something that must hold and does not",
        "they are printed",
    ),
    ExitCode.HELD: ("`why` found that something holds the feed's checkpoint", "it says what to do"),
    ExitCode.STOPPED_HARD: (
        "a clean stop took longer than allowed, so it was cut short",
        "`HEADGATE_SHUTDOWN_SECONDS`",
    ),
}
"""Code → (what it says, what to do)."""


class CommandError(Exception):
    """An expected error of a command itself: its exit code and a message that says what, where and what to do."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
