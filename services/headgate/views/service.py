"""The views as a service: a Faust application on its own thread and event loop, until it is stopped.

Faust's own web server answers the routes. It runs in the loop that reads the topics, so nothing is shared.

A rebuild is complete at the last records that a reader is given, found by reading from the end backwards. The end
offset of a partition does not show that: markers of transactions and records of aborted ones come behind the last.
"""

import asyncio
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, ClassVar, Final

import faust
import msgspec
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.lasting_reader import LOOK_SECONDS as STALL_LOOK_SECONDS
from headgate.eventlog.lasting_reader import STALL_SECONDS
from headgate.eventlog.log import Log, LogError, Partition
from headgate.eventlog.replay import read_to_end
from headgate.eventlog.snapshot import all_partitions
from headgate.observability.logs import logger
from headgate.observability.probes import PortTakenError, Probes
from headgate.views.group import group_may_be_joined, group_of, group_was_forgotten
from headgate.views.lag import LagWindows
from headgate.views.metrics import ViewsMetrics
from headgate.views.model import ViewsModel
from headgate.views.positions import Groups, positions_of
from headgate.views.routes import ROUTES, BadQueryError, Failure, Route, ViewContext, answer_to, openapi, why_not_found
from headgate.views.stream import TOPICS, make_app, read_topics, stop_app

LOOK_BACK_FIRST: Final = 100
"""Offsets looked at first; ten times as many each time that none of them was visible."""


def last_offsets(log: Log, partitions: list[Partition]) -> dict[Partition, int]:
    """The last visible offset of each partition that has one. Raises LogError, NewerSchemaError."""
    found: dict[Partition, int] = {}
    ends = {partition: end for partition, end in log.end_offsets(partitions).items() if end > 0}
    look_back = LOOK_BACK_FIRST
    while ends:
        start = {partition: max(0, end - look_back) for partition, end in ends.items()}
        for read in read_to_end(log, sorted(ends), start):
            found[read.partition] = max(read.offset, found.get(read.partition, 0))
        ends = {partition: end for partition, end in ends.items() if partition not in found and start[partition] > 0}
        look_back *= 10
    return found


def first_offset_after(log: Log, partition: Partition, last: int) -> int | None:
    """The first visible offset behind ``last``, None if there is none. Raises LogError, NewerSchemaError."""
    start = max(last + 1, log.first_offsets([partition])[partition])
    with closing(read_to_end(log, [partition], {partition: start})) as reads:
        return next((read.offset for read in reads), None)


class ReadingStoppedError(LogError):
    """Faust's client does not read on, as after the loss of a broker. A new process reads with a new client."""

    code: ClassVar[str] = "reading-stopped"


class ReadingWatch:
    """Notices that a partition is no longer read, by the rule of eventlog/lasting_reader.py.

    Faust's client cannot be replaced in its process, so the process ends and its platform starts another one. Brokers
    that do not answer are not the client's fault: what is shown gets old, and the views show it.
    """

    def __init__(self, log: Log, partitions: list[Partition], monotonic: Callable[[], float]) -> None:
        self._log = log
        self._partitions = partitions
        self._monotonic = monotonic
        self._looked_at = self._answered_at = monotonic()
        self._short: dict[Partition, tuple[int, float, int]] = {}
        """Partition below its end → last offset read, since when, the end at that time."""
        self._hidden: dict[Partition, int] = {}
        """Ends behind which there is nothing but marks of transactions."""

    @property
    def silent_seconds(self) -> float:
        """How long ago brokers last answered: what is read may be that old."""
        return max(0.0, self._monotonic() - self._answered_at)

    def check(self, at: Mapping[Partition, int]) -> None:
        """Raise ReadingStoppedError if records are missing; see ``stopped``."""
        reason = self.stopped(at)
        if reason is not None:
            raise ReadingStoppedError(f"Faust's client has stopped reading: {reason}. Start the views again")

    def stopped(self, at: Mapping[Partition, int]) -> str | None:
        """Why records are missing, None if none are. ``at``: the last offset read of each partition.

        Ask every STALL_LOOK_SECONDS. Brokers that do not answer prove nothing.
        """
        try:
            return self._look(at)
        except LogError:
            self._short.clear()
            return None

    def _look(self, at: Mapping[Partition, int]) -> str | None:
        ends = self._log.stable_offsets(self._partitions)
        now = self._answered_at = self._monotonic()
        if now - self._looked_at > 2 * STALL_LOOK_SECONDS:
            self._short.clear()  # this process was frozen, not the client
        self._looked_at = now
        short = {p: at.get(p, -1) for p, end in ends.items() if at.get(p, -1) + 1 < end != self._hidden.get(p)}
        self._short = {p: self._since(p, last, now, ends[p]) for p, last in short.items()}
        stalled = [p for p, (_, since, _) in self._short.items() if now - since >= STALL_SECONDS]
        for partition in stalled:
            last, _, end = self._short[partition]
            missing = first_offset_after(self._log, partition, last)
            if missing is not None and missing < end:
                return (
                    f"{partition.topic}/{partition.number} has stayed at offset {last} for {STALL_SECONDS:g} s, below "
                    f"the record at offset {missing}"
                )
            if missing is not None and missing < ends[partition]:
                # Until it was written, nothing was missing: the client gets as long for it as for any other.
                self._short[partition] = last, now, ends[partition]
            else:
                self._hidden[partition] = ends[partition]
        return None

    def _since(self, partition: Partition, last: int, now: float, end: int) -> tuple[int, float, int]:
        before = self._short.get(partition)
        return before if before is not None and before[0] == last else (last, now, end)


def serve_pages(app: faust.App, known: ViewContext, model: ViewsModel, age: Callable[[], float]) -> None:
    """Answer every route, and /openapi.json, from now on; other paths with the error that names these.

    ``age``: how many seconds old an answer may be, which its header ``Age`` shows (RFC 9111).
    """
    for route in ROUTES:
        app.page(route.path)(_page(route, known, model, age))
    described = openapi()

    async def describe(web: Any, request: Any) -> Any:  # noqa: ARG001
        return web.json(described)

    app.page("/openapi.json")(describe)

    async def refuse(web: Any, request: Any, unknown: str) -> Any:  # noqa: ARG001
        known_paths = ", ".join([*(route.path for route in ROUTES), "/openapi.json"])
        return _failed(web, 404, "unknown_path", f"/{unknown} is not a path of the views; they are {known_paths}")

    app.page("/{unknown:.*}")(refuse)  # the last one: paths are tried in the order in which they were added


def _page(route: Route, known: ViewContext, model: ViewsModel, age: Callable[[], float]) -> Callable[..., Any]:
    async def page(web: Any, request: Any, **path: str) -> Any:
        if model.behind:
            waiting = f"{len(model.behind)} partitions of the topics are still being read: {', '.join(model.behind)}"
            return _failed(web, 503, "rebuilding", waiting)
        try:
            answer = answer_to(route, known, path, request.query)
        except BadQueryError as error:
            return _failed(web, 400, "bad_query", str(error))
        if answer is None:
            return _failed(web, 404, "not_found", why_not_found(known, path, request.query))
        return web.json(answer, headers={"Age": str(int(age()))})

    # Faust names a page's class after its function.
    page.__name__ = "page_" + "_".join(part.strip("{}") for part in route.path.split("/") if part)
    return page


def _failed(web: Any, status: int, name: str, message: str) -> Any:
    return web.json(msgspec.to_builtins(Failure(name=name, message=message)), status=status)


LOOK_SECONDS: Final = 0.1
"""How often it is looked whether to stop, and whether all has been read."""

LOOP: Final = "views"

GROUPS_SECONDS: Final = 5.0
"""How often positions are written to consumer groups: tools that show lag ask no more often."""


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

        Raises LogError (ReadingStoppedError), NewerSchemaError, SettingsError, PortTakenError, ViewsEndedError.
        """
        asyncio.run(self._serve())
        return True

    async def _serve(self) -> None:
        self._probes.expect(LOOP, "looking for the ends of the topics")
        last = await asyncio.to_thread(last_offsets, self._log, all_partitions(self._log, TOPICS))
        group = group_of(self._settings.prefix)
        await group_may_be_joined(self._log.connection, group, lambda: self._asked)
        with (
            listening(self._settings.views.bind, self._settings.views.port) as listener,
            tempfile.TemporaryDirectory(prefix="headgate-views-") as folder,
        ):
            app = make_app(self._settings, group, listener, folder)
            lags = LagWindows(app)
            model = ViewsModel(lags, last)
            read_topics(app, self._settings, model, self._fail)
            known = ViewContext(
                snapshot=model.snapshot, history=model.history, shards=self._log.shards, lag=lags.points
            )
            watch = ReadingWatch(self._log, all_partitions(self._log, TOPICS), time.monotonic)
            serve_pages(app, known, model, lambda: watch.silent_seconds)
            self._metrics.watch(model)
            started = asyncio.create_task(self._start(app, lags))
            shown = asyncio.create_task(self._show_positions(model))
            watched = asyncio.create_task(self._watch_reading(watch, model))
            tasks = (started, shown, watched)
            try:
                await self._turn(app, model, watch, tasks, listener.getsockname()[1])
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await stop_app(app)
        await asyncio.to_thread(group_was_forgotten, self._log.connection, group)
        if self._failure is not None:
            raise self._failure
        if app.crashed:
            raise ViewsEndedError(f"Faust has given up: {app.crash_reason}") from app.crash_reason

    async def _turn(
        self, app: faust.App, model: ViewsModel, watch: ReadingWatch, tasks: tuple[asyncio.Task[None], ...], port: int
    ) -> None:
        """Until the end; ``tasks`` begin with Faust's start. Raises what one of them failed for."""
        log, is_told, started = logger(service=LOOP), False, tasks[0]
        while not (self._asked or self._failure is not None or app.crashed or app.should_stop):
            self._probes.turned(LOOP)
            if not started.done():
                self._probes.unready(LOOP, "joining the group")
            elif model.behind:
                self._probes.unready(LOOP, f"rebuilding: {len(model.behind)} partitions are still being read")
            elif watch.silent_seconds > STALL_SECONDS:
                self._probes.unready(LOOP, f"no broker has answered for {watch.silent_seconds:.0f} s")
            else:
                self._probes.ready(LOOP)
                if not is_told:
                    is_told = True
                    log.info("rebuilt", records=model.records, views_port=port)
            await asyncio.sleep(LOOK_SECONDS)
            for task in tasks:
                if task.done():
                    await task

    async def _start(self, app: faust.App, lags: LagWindows) -> None:
        try:
            await app.start()
        except KafkaError as error:
            raise LogError(
                f"Faust's client cannot continue with Kafka at {self._settings.bootstrap}: {error}"
            ) from error
        await app.add_runtime_dependency(lags.table)

    async def _show_positions(self, model: ViewsModel) -> None:
        groups = Groups(self._log.connection, self._settings.prefix)
        while True:
            if self._settings.views.groups and not model.behind:
                # Taken here, where nothing changes them in the meantime; the brokers are asked elsewhere.
                positions = positions_of(model.snapshot)
                await asyncio.to_thread(groups.write, positions, lambda: self._asked)
            await asyncio.sleep(GROUPS_SECONDS)

    async def _watch_reading(self, watch: ReadingWatch, model: ViewsModel) -> None:
        while True:
            await asyncio.sleep(STALL_LOOK_SECONDS)
            await asyncio.to_thread(watch.check, model.positions)

    def _fail(self, error: Exception) -> None:
        self._failure = error


def listening(bind: str, port: int) -> socket.socket:
    """The socket that Faust's web server is to listen on, bound. Raises PortTakenError.

    Faust itself has no "any free port", reports a port in use only as a crash, and loses its socket if it is stopped
    just when it has made it.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in bind else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bind, port))
    except OSError as error:
        listener.close()
        raise PortTakenError(
            f"cannot listen on {bind}:{port}: {error.strerror}; choose another with HEADGATE_VIEWS__PORT (0 takes any "
            "free one)"
        ) from error
    return listener
