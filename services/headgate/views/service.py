"""The views as a service: a Faust application on a thread and an event loop of its own, until it is told to stop."""

import asyncio
import socket
import tempfile
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

import faust
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry

from headgate.config.settings import Settings
from headgate.eventlog.connection import ADMIN_SECONDS_MAX
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError
from headgate.eventlog.snapshot import all_partitions
from headgate.observability.logs import logger
from headgate.observability.probes import PortTakenError, Probes
from headgate.views.ends import last_offsets
from headgate.views.lag import LagWindows
from headgate.views.metrics import ViewsMetrics
from headgate.views.model import ViewsModel
from headgate.views.pages import serve_pages
from headgate.views.routes import Known
from headgate.views.stream import group_of, make_app, read_topics

__all__ = ["ViewsEndedError", "ViewsService"]

LOOK_SECONDS: Final = 0.1
"""How often it is looked whether to stop, and whether all has been read."""

LOOP: Final = "views"


class ViewsEndedError(RuntimeError):
    """Faust has given up; what it gave up for is the cause."""


class ViewsService:
    """See the package. ``run`` returns when it was stopped."""

    def __init__(self, settings: Settings, log: KafkaLog, *, probes: Probes, registry: CollectorRegistry) -> None:
        self._settings = settings
        self._log = log
        self._probes = probes
        self._metrics = ViewsMetrics(registry)
        self._asked = False
        self._failure: Exception | None = None

    def stop(self) -> None:
        """End; safe in a signal handler, and when repeated."""
        self._asked = True

    def run(self) -> bool:
        """Serve until stopped; always a clean stop, for there is nothing to hand over.

        Raises LogError, NewerSchemaError, SettingsError, PortTakenError, ViewsEndedError.
        """
        asyncio.run(self._serve())
        return True

    async def _serve(self) -> None:
        self._probes.expect(LOOP, "looking for the ends of the topics")
        last = await asyncio.to_thread(last_offsets, self._log, all_partitions(self._log))
        group, port = group_of(self._settings), _port(self._settings.views.bind, self._settings.views.port)
        with tempfile.TemporaryDirectory(prefix="headgate-views-") as folder:
            app = make_app(self._settings, group, port, folder)
            lags = LagWindows(app)
            model = ViewsModel(lags, last)
            read_topics(app, self._settings, model, self._fail)
            known = Known(snapshot=model.snapshot, history=model.history, shards=self._log.shards, lag=lags.points)
            serve_pages(app, known, model)
            self._metrics.watch(model)
            try:
                await app.start()
                await app.add_runtime_dependency(lags.table)
                await self._turn(app, model, port)
            finally:
                await app.stop()
        await asyncio.to_thread(self._forget, group)
        if self._failure is not None:
            raise self._failure
        if app.crashed:
            raise ViewsEndedError(f"Faust has given up: {app.crash_reason}") from app.crash_reason

    async def _turn(self, app: faust.App, model: ViewsModel, port: int) -> None:
        log, is_told = logger(service=LOOP), False
        while not (self._asked or self._failure is not None or app.crashed or app.should_stop):
            self._probes.turned(LOOP)
            if model.behind:
                self._probes.unready(LOOP, f"rebuilding: {len(model.behind)} partitions are still being read")
            elif not is_told:
                is_told = True
                self._probes.ready(LOOP)
                log.info("rebuilt", records=model.records, views_port=port)
            await asyncio.sleep(LOOK_SECONDS)

    def _fail(self, error: Exception) -> None:
        self._failure = error

    def _forget(self, group: str) -> None:
        """The group was this start's alone; one that is left over, after a kill, the brokers forget by themselves."""
        futures: dict[str, Future[None]] = self._log.connection.admin.delete_consumer_groups(
            [group], request_timeout=ADMIN_SECONDS_MAX
        )
        for future in futures.values():
            # A broker that is away, or a right that is missing, must not spoil our end.
            with suppress(LogError, KafkaException, TimeoutError):
                self._log.connection.wait(f"forgetting group {group}", future)


def _port(bind: str, port: int) -> int:
    """The port to listen on: Faust knows no "any free one", and says of one that is taken only that it has crashed."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((bind, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        raise PortTakenError(
            f"cannot listen on {bind}:{port}: {error.strerror}; choose another with HEADGATE_VIEWS__PORT (0 takes any "
            "free one)"
        ) from error
