"""What an error of a sink means for the span whose batch met it: in a task that applies, and at the driver's commit."""

import traceback

import msgspec

from headgate.formats.change import ChangeError
from headgate.sinks.contract import SinkError, SinkSilentError, SinkUnavailableError, ValueRefusedError
from headgate.sinks.lacking_columns import LackingColumnsError

__all__ = ["SinkFailure", "described", "failure_of"]


class SinkFailure(msgspec.Struct, frozen=True):
    """An error as a span's result reports it.

    ``is_silent`` and ``lacking``: as in SpanResult. ``spoils_session``: the session is not to be used any more.
    """

    code: str
    text: str
    retryable: bool
    is_silent: bool = False
    lacking: dict[str, str] = {}
    spoils_session: bool = False


def failure_of(error: Exception, topic: str, *, alters_tables: bool) -> SinkFailure:
    """What ``error`` means. ``alters_tables``: a table that refuses a value may be altered, and then takes it."""
    if isinstance(error, SinkUnavailableError):
        is_silent, spoils = isinstance(error, SinkSilentError), error.spoils_session
        return SinkFailure(error.code, str(error), retryable=True, is_silent=is_silent, spoils_session=spoils)
    if isinstance(error, SinkError):
        # The table may be altered first, and then shows whether it takes the value (altered_tables.py).
        is_alterable = isinstance(error, ValueRefusedError) and alters_tables
        lacking = error.columns if isinstance(error, LackingColumnsError) else {}
        return SinkFailure(error.code, str(error), retryable=error.retryable or is_alterable, lacking=lacking)
    if isinstance(error, ChangeError):
        return SinkFailure("change_undecodable", f"{topic}: {error}", retryable=False)
    return SinkFailure("internal", described(error), retryable=False, spoils_session=True)


def described(error: Exception) -> str:
    """What happened and where. Errors of Python about values ("invalid literal …") may quote a row: only their name."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = f": {error}" if isinstance(error, RuntimeError | OSError) else ""
    return f"{type(error).__name__}{said} (at {where.filename}:{where.lineno}): an internal error"
