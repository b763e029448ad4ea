"""Exit statuses of commands, and the error that ends one. What each means is in exit_codes.py, which imports more."""

from enum import IntEnum


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
    NOT_CONFIRMED = 45
    DIFFERENCE = 50
    HELD = 51
    CHECK_FAILED = 52
    UNSETTLED = 53
    NOT_REPORTED = 54
    STOPPED_HARD = 60
    OUTPUT_LOST = 61


class CommandError(Exception):
    """An expected error of a command itself: its exit code and a message with what failed, where, and what to do."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
