"""What a service process needs around its service: logs, operations endpoints, the cluster's log, and its signals.

The service runs on threads of its own. The main thread only waits for a signal, for a part to end or for a thread to
crash: a signal handler runs in between any two instructions of the main thread, so it may do no more than leave a note.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, Final

import msgspec
import psutil
from prometheus_client import CollectorRegistry

from headgate import __version__
from headgate.app.cluster import cluster_settings
from headgate.app.exit_codes import CommandError, ExitCode
from headgate.config.crash_points import VARIABLE as CRASH_POINTS_VARIABLE
from headgate.config.settings import Settings, redacted
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics
from headgate.observability.logs import configure_logs, logger
from headgate.observability.metrics import new_registry
from headgate.observability.probes import Probes
from headgate.runtime.service import SILENCE_SECONDS_MAX
from headgate.supervision.threads import SUPERVISOR, BackgroundThread

LOOK_SECONDS: Final = 0.1
"""How often the main thread looks for a note of a signal, or for a part that has ended."""

RESIGN_SECONDS: Final = 2.0
"""Kept for each part that is stopped later: resigning is one transaction."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class ThreadCrashedError(RuntimeError):
    """A background thread ended with an unexpected error, so the process cannot do all of its work any more."""


class Surroundings(msgspec.Struct, frozen=True):
    """What a service is given. ``http_port`` is the port really listened on."""

    settings: Settings
    log: KafkaLog
    probes: Probes
    registry: CollectorRegistry
    http_port: int


@contextmanager
def surrounded(
    service: str, flags: Mapping[str, Any], *, create: bool, routes: Sequence[Any] = ()
) -> Iterator[Surroundings]:
    """Everything around one service, taken down in order; ``routes`` (aiohttp's) are served beside the probes.

    Raises SettingsError, LogError, PortTakenError.
    """
    settings = cluster_settings(flags)
    configure_logs(settings.log.format, settings.log.level)
    probes, registry = Probes(SILENCE_SECONDS_MAX), new_registry()
    with ExitStack() as stack:
        # aiohttp takes half a second to import; commands that only look do without it.
        from headgate.observability.http import OpsServer  # noqa: PLC0415

        ops = OpsServer(settings.http.bind, settings.http.port, probes, registry, routes)
        stack.callback(ops.close)
        if create:
            create_topics(settings)
        log = open_log(settings)
        stack.callback(log.close)
        ops.start()
        logger(service=service).info(
            "started", version=__version__, http_port=ops.port, cluster_id=log.cluster_id, settings=redacted(settings)
        )
        if CRASH_POINTS_VARIABLE in os.environ:
            logger(service=service).warning(
                "this process can be paused at named points: for tests only",
                variable=CRASH_POINTS_VARIABLE,
            )
        yield Surroundings(settings, log, probes, registry, ops.port)
    logger(service=service).info("stopped")


class Part:
    """One service of this process on its own thread. ``stop`` asks it to end; it may be called more than once."""

    def __init__(self, name: str, run: Callable[[], object], stop: Callable[[], None]) -> None:
        self.name = name
        self.stop = stop
        self.error: BaseException | None = None
        self.result: object = None
        self._run = run
        self._thread = BackgroundThread(self._carry, name=name)

    def start(self) -> None:
        """Run from now on."""
        self._thread.start()

    def ended(self, timeout_seconds: float = 0.0) -> bool:
        """Whether it has ended, waiting at most so long."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _carry(self) -> None:
        try:
            self.result = self._run()
        except BaseException as error:  # noqa: BLE001 - carried to the main thread, which raises it
            self.error = error


def run_parts(parts: Sequence[Part], shutdown_seconds: float) -> None:
    """Run until a signal comes, a part ends or a thread crashes, then stop all, in this order.

    Raises what a part raised, or ThreadCrashedError.

    An agent comes before the coordinator that moves its tables away. CommandError if a part has not ended
    ``shutdown_seconds`` after the first was asked to. A second signal ends the process.
    """
    strangers = set(psutil.Process().children(recursive=True))
    with _noted_signals() as asked:
        for part in parts:
            part.start()
        while not asked() and not any(part.ended() for part in parts) and not SUPERVISOR.fatal:
            time.sleep(LOOK_SECONDS)
        deadline = time.monotonic() + shutdown_seconds
        for behind, part in zip(reversed(range(len(parts))), parts, strict=True):
            part.stop()
            part.ended(max(deadline - behind * RESIGN_SECONDS - time.monotonic(), LOOK_SECONDS))
        late = [part.name for part in parts if not part.ended()]
    for part in parts:
        if part.error is not None:
            raise part.error
    if SUPERVISOR.fatal:
        raise ThreadCrashedError(f"{SUPERVISOR.fatal[0]}. Its traceback is in the log. Report it; restart the process")
    hanging = bool(late)
    late += [part.name for part in parts if part.result is False]
    if hanging:
        _end_children(strangers)
    if late:
        raise CommandError(
            ExitCode.STOPPED_HARD,
            f"{', '.join(late)}: no clean stop within {shutdown_seconds:g} s, so it was cut short; others take over "
            "when its lease has run out. HEADGATE_SHUTDOWN_SECONDS gives it longer",
        )


def _end_children(strangers: AbstractSet[psutil.Process]) -> None:
    """Children of a hanging part, such as a Spark that starts, must neither outlive this process nor delay its end.

    ``strangers`` existed before the parts: they belong to the parent process.
    """
    for child in set(psutil.Process().children(recursive=True)) - strangers:
        with suppress(psutil.NoSuchProcess):
            child.kill()


@contextmanager
def _noted_signals() -> Iterator[Callable[[], bool]]:
    """Within, SIGTERM and SIGINT are only recorded; the second of them ends the process at once."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
