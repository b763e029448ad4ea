"""Structured logs: one event name and its facts per line, on standard error.

On a terminal the lines are for people, elsewhere each is one JSON object. Standard output is left to what a command
was asked for. Libraries that log through ``logging`` come out the same way, those
that repeat themselves many times a second without the repetitions.
"""

import logging
import os
import sys
from typing import Final, Literal, TextIO

import structlog
from structlog.typing import Processor

from headgate.eventlog.repeats import Repeats
from headgate.observability.colour import in_colour

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_NOISY: Final = ("py4j", "urllib3", "kafka", "aiokafka", "faust", "mode", "headgate.views")
"""Libraries whose info lines are one per call: only their warnings are of use.

Faust logs for a subclass of Headgate under the module of that subclass.
"""

_REPETITIVE: Final = ("aiokafka", "faust", "mode")
"""Libraries that log each attempt while no broker answers: 70 lines a second were seen."""

_QUOTING: Final = "urllib3.connection"
"""It warns of headers that it cannot parse, and quotes them: a server may repeat a request in them, with its secret."""

_PY4J: Final = f"{os.sep}py4j{os.sep}"


def _is_news(record: logging.LogRecord) -> bool:
    """False for what Py4J logs of calls that were under way when a JVM ended, in either direction.

    It raises the same error to the caller, which reports it.
    """
    if record.name == "root":
        return _PY4J not in record.pathname
    return record.name.partition(".")[0] != "py4j" or not _is_of_py4j(record)


def _is_of_py4j(record: logging.LogRecord) -> bool:
    """Whether the record is about an error of Py4J itself. Services without Spark do not have the package."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is not None and any(base.__module__ == "py4j.protocol" for base in kind.__mro__)


class _LibraryRepeats(logging.Filter):
    """For a handler, since a logger filters only what is logged under its own name."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] not in _REPETITIVE or self._repeats.filter(record)


def configure_logs(
    log_format: Literal["auto", "console", "json"] = "auto", level: str = "info", stream: TextIO | None = None
) -> None:
    """Set up logging for this process; calling it again replaces what was set up."""
    out = stream or sys.stderr
    as_json = log_format == "json" or (log_format == "auto" and not out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderers: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True, default=str)]
        if as_json
        # Plain: a traceback with its variables is a hundred lines, and may hold a password.
        else [structlog.dev.ConsoleRenderer(colors=in_colour(out), exception_formatter=structlog.dev.plain_traceback)]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    handler.addFilter(_is_news)
    handler.addFilter(_LibraryRepeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(_QUOTING).setLevel(logging.ERROR)


def logger(**facts: object) -> structlog.stdlib.BoundLogger:
    """A logger whose every line carries ``facts`` (service, shard, agent …).

    Its lines go where logs go when they are written, whenever it was made.
    """
    lazy: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger("headgate", **facts)
    return lazy
