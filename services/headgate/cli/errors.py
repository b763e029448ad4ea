"""From an expected error to its exit code: one table, and the place where commands end.

An error whose type stands here is printed as its message, which says what, where and what to do. Any other is a bug
and keeps its traceback.
"""

import os
from typing import Any, Final

import psycopg
import typer
from typer.core import TyperGroup

from headgate.agent.session import IdInUseError
from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.output import complain
from headgate.config.feed import FeedSpecError
from headgate.config.settings import SettingsError
from headgate.embedded.errors import EmbeddedError, NoJavaError
from headgate.embedded.errors import PortTakenError as EmbeddedPortTakenError
from headgate.eventlog.connection import BrokerUnreachableError, PropertyRefusedError
from headgate.eventlog.log import LogError, NewerSchemaError
from headgate.eventlog.role import RoleEndedError
from headgate.eventlog.topics import (
    TopicMissingError,
    TopicNotCompactedError,
    TopicPartitionsError,
    TopicSettingError,
)
from headgate.observability.http import PortTakenError
from headgate.records.names import InvalidNameError
from headgate.sinks.contract import SinkError, SinkUnavailableError
from headgate.sources.offsets import SourceError

__all__ = ["Commands", "exit_code_of"]

_CODES: Final[dict[type[BaseException], ExitCode]] = {
    SettingsError: ExitCode.SETTING,
    PropertyRefusedError: ExitCode.SETTING,
    FeedSpecError: ExitCode.FEED_SPEC,
    InvalidNameError: ExitCode.FEED_SPEC,
    PortTakenError: ExitCode.PORT_TAKEN,
    EmbeddedPortTakenError: ExitCode.PORT_TAKEN,
    IdInUseError: ExitCode.ID_IN_USE,
    NoJavaError: ExitCode.NO_JAVA,
    EmbeddedError: ExitCode.EMBEDDED,
    BrokerUnreachableError: ExitCode.BROKER_UNREACHABLE,
    TopicMissingError: ExitCode.TOPICS_MISSING,
    TopicNotCompactedError: ExitCode.TOPICS_WRONG,
    TopicPartitionsError: ExitCode.TOPICS_WRONG,
    TopicSettingError: ExitCode.TOPICS_WRONG,
    NewerSchemaError: ExitCode.NEWER_SCHEMA,
    LogError: ExitCode.LOG,
    RoleEndedError: ExitCode.LOG,
    SinkUnavailableError: ExitCode.SINK_UNAVAILABLE,
    SinkError: ExitCode.SINK_REFUSED,
    SourceError: ExitCode.SOURCE,
    psycopg.Error: ExitCode.DATABASE,
}


def exit_code_of(error: BaseException) -> ExitCode | None:
    """The code of the nearest class of ``error`` in the table; None for an error nobody expected."""
    if isinstance(error, CommandError):
        return error.code
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return None


class Commands(TyperGroup):
    """The top group of commands: whatever a command raises comes through here."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an expected error is printed and becomes its exit code."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            code = exit_code_of(error)
            if code is None:
                raise
            complain(str(error))
            if code is ExitCode.STOPPED_HARD:
                # A part hangs on a thread that the interpreter would wait for at its end.
                os._exit(int(code))
            raise typer.Exit(int(code)) from error
