"""The demo's course: everything up, everybody writing, three faults, everybody at rest, everything compared.

``running_shop`` has it all up and takes it all down again, however it ends; ``play`` is what happens in between.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil
import psycopg
from psycopg.sql import SQL, Identifier

from headgate.demo.audit import AuditReport, audit
from headgate.demo.compare import Comparison, compare
from headgate.demo.display import Display
from headgate.demo.faults import Faults, Takeover
from headgate.demo.load import Load, write_markers
from headgate.demo.orphans import no_orphans
from headgate.demo.pauses import longest_pauses
from headgate.demo.processes import stop_all, terminated_as_interrupt, uninterrupted
from headgate.demo.report import Report
from headgate.demo.schema import TABLES, Row, Table
from headgate.demo.services import Services, create_feed
from headgate.demo.stack import TOPIC_PREFIX, Stack, running_stack
from headgate.demo.tables import all_apply, all_replicate, passed, views
from headgate.demo.watch import Watch, WatchError
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import open_log
from headgate.eventlog.topics import create_topics
from headgate.sources.offsets import end_offsets

__all__ = ["Options", "Shop", "demonstrate", "running_shop"]

REPLICATING_SECONDS_MAX: Final = 120.0
"""From the feed's creation until every table replicates; Spark sessions start meanwhile."""

FIRST_ROWS_SECONDS_MAX: Final = 60.0
"""A Spark session's first batch compiles everything it does; on two busy cores that takes ten seconds."""

DRAIN_SECONDS_MAX: Final = 120.0
"""From the last commit in the source until the feed has passed it."""

WRITERS: Final = 2
QUIET_PHASES: Final = 4
"""Before, between and after the three faults."""

POLL_SECONDS: Final = 0.25
LAG_SAMPLE_SECONDS: Final = 1.0


class Options(msgspec.Struct, frozen=True):
    """``duration`` seconds of undisturbed writing in all, ``rate`` changes per second, ``keep`` the folder."""

    duration: float
    rate: float
    agents: int
    seed: int
    keep: bool


class Shop(msgspec.Struct, frozen=True):
    """Everything that is up. ``folder`` has the logs of all processes in ``logs``."""

    folder: Path
    stack: Stack
    services: Services
    watch: Watch
    load: Load
    faults: Faults


class _Cluster(msgspec.Struct, frozen=True):
    """What the demo's own reader must know of the cluster; the user's settings are for another one."""

    bootstrap: str
    cluster: str = "headgate"
    shards: int = 1
    replication_factor: int = 1
    kafka: dict[str, str] = {}


@contextmanager
def running_shop(options: Options, display: Display, left_over: list[str]) -> Iterator[Shop]:
    """All of it up, the feed created, every table replicating, the writers writing; then all of it down.

    ``left_over`` gets a line for each process that had to be killed or is still there. Logs stay if anything raises.
    """
    folder = Path(tempfile.mkdtemp(prefix="headgate-demo-"))
    # PostgreSQL runs as another user when we are root, and must be able to pass.
    folder.chmod(0o711)
    parts = ExitStack()
    failed = True
    with terminated_as_interrupt() as signals:
        try:
            yield _start(options, display, folder, parts, left_over)
            failed = False
        except Exception as error:
            if signals:
                raise KeyboardInterrupt from error
            raise
        finally:
            with uninterrupted():
                display.say("stopping everything")
                try:
                    parts.close()
                finally:
                    left_over += [f"{one.pid} {one.name()}" for one in psutil.Process().children(recursive=True)]
                    _clear(folder, options, display, failed=failed and not signals)


def _start(options: Options, display: Display, folder: Path, parts: ExitStack, left_over: list[str]) -> Shop:
    (folder / "logs").mkdir()
    parts.enter_context(no_orphans())
    stack = parts.enter_context(running_stack(folder, options.seed, display.say))
    cluster = _Cluster(stack.bootstrap)
    create_topics(cluster)
    log = open_log(cluster)
    parts.callback(log.close)
    watch = Watch(log)
    parts.callback(watch.close)
    services = Services(stack, options.agents, folder / "logs")
    parts.callback(lambda: left_over.extend(stop_all(services.all)))
    load = Load(stack.source_dsn, seed=options.seed, writers=WRITERS, rate=options.rate, keys=stack.keys)
    parts.callback(load.stop)
    parts.enter_context(display.status(watch, load))
    display.say(f"starting two coordinators and {options.agents} agents; their logs are in {services.log_folder}")
    services.start_coordinators()
    services.start_agents()
    display.say(f"{WRITERS} writers begin: {options.rate:g} changes per second, seed {options.seed}")
    load.start()
    faults = Faults(services, watch, stack.target_dsn, display.say)
    faults.await_services()
    began = time.monotonic()
    file = create_feed(stack, services, folder)
    display.say(f"headgate feed create {file.name}: accepted")

    def check() -> None:
        services.check()
        load.check()

    at = watch.wait_for(
        "every table replicates", lambda seen: all_replicate(seen.snapshot), REPLICATING_SECONDS_MAX, check
    )
    with watch.condition:
        held = ", ".join(
            f"{view.span} on {view.role.agent}" for view in views(watch.seen.snapshot) if view.role is not None
        )
    display.say(f"all tables replicate {at - began:.1f} s after that: {held}")
    at = watch.wait_for(
        "every table has applied rows", lambda seen: all_apply(seen.snapshot), FIRST_ROWS_SECONDS_MAX, check
    )
    display.say(f"all tables have applied their first rows {at - began:.1f} s after that")
    return Shop(folder, stack, services, watch, load, faults)


def _clear(folder: Path, options: Options, display: Display, *, failed: bool) -> None:
    """Remove the folder; keep the logs of what failed, and everything if asked to."""
    if options.keep:
        display.say(f"kept: {folder}")
        return
    if not failed:
        shutil.rmtree(folder)
        return
    for entry in folder.iterdir():
        if entry.name == "logs":
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    display.say(f"the services' logs are kept in {folder / 'logs'}")


def demonstrate(options: Options, display: Display) -> Report:
    """The whole demo. Raises what starting raises, WatchError, ServiceError, LoadError."""
    left_over: list[str] = []
    with running_shop(options, display, left_over) as shop:
        report = _play(shop, options, display)
    return msgspec.structs.replace(report, left_over=tuple(left_over))


def _play(shop: Shop, options: Options, display: Display) -> Report:
    began, rows_before = time.monotonic(), shop.watch.rows_applied()
    lags: list[float] = []
    takeovers: list[Takeover] = []
    quiet = options.duration / QUIET_PHASES
    _write_quietly(shop, quiet, lags)
    with shop.watch.condition:
        shop.watch.seen.lag_ms_max = 0
    for title, fault in (
        ("An agent dies", shop.faults.kill_agent),
        ("An agent freezes, and wakes up when its tables have long been somebody else's", shop.faults.freeze_agent),
        ("The owner dies", shop.faults.kill_owner),
    ):
        display.head(title)
        takeovers.append(fault())
        _write_quietly(shop, quiet, lags)
    seconds, rows = time.monotonic() - began, shop.watch.rows_applied() - rows_before
    display.head("The writers stop")
    drain_seconds = _drain(shop, options, display)
    false_losses = shop.faults.false_losses()
    comparisons, audited, pauses = _check(shop, takeovers, display)
    return Report(
        seed=options.seed,
        comparisons=comparisons,
        audited=audited,
        takeovers=tuple(takeovers),
        pauses=pauses,
        false_losses=tuple(false_losses),
        left_over=(),
        changes_written=shop.load.counts().total(),
        rows_applied=rows,
        seconds=seconds,
        lag_seconds_max=shop.watch.seen.lag_ms_max / 1000,
        lag_seconds_quiet=tuple(lags),
        drain_seconds=drain_seconds,
    )


def _write_quietly(shop: Shop, seconds: float, lags: list[float]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        shop.services.check()
        shop.load.check()
        with shop.watch.condition:
            known = [view.lag_ms for view in views(shop.watch.seen.snapshot) if view.lag_ms is not None]
        if known:
            lags.append(max(known) / 1000)
        time.sleep(min(LAG_SAMPLE_SECONDS, max(0.0, deadline - time.monotonic())))


def _drain(shop: Shop, options: Options, display: Display) -> float:
    """Stop the writers and wait until everything they wrote has been applied; how long that took.

    A last row per table is written; once it stands in the target, every change of its table before it has been
    applied, and the topics' ends are behind the last commit: the feed's checkpoint must pass them too.
    """
    shop.load.stop()
    began = time.monotonic()
    with psycopg.connect(shop.stack.source_dsn, autocommit=True) as source:
        markers = write_markers(source, options.seed)
    display.say("waiting until the feed has passed the last commit")
    with psycopg.connect(shop.stack.target_dsn, autocommit=True) as target:
        missing = [table for table in TABLES if not _stands(target, table, markers[table.name])]
        while missing:
            if time.monotonic() - began > DRAIN_SECONDS_MAX:
                names = ", ".join(table.full_name for table in missing)
                raise WatchError(f"the last change of {names} has not arrived after {DRAIN_SECONDS_MAX:.0f} s")
            shop.services.check()
            time.sleep(POLL_SECONDS)
            missing = [table for table in missing if not _stands(target, table, markers[table.name])]
    topics = {f"{TOPIC_PREFIX}.{table.full_name}": 1 for table in TABLES}
    connection = KafkaConnection(shop.stack.bootstrap)
    ends = end_offsets(connection, topics)
    connection.close()
    what = f"the feed's checkpoint passes the ends of its topics, {ends}"
    at = shop.watch.wait_for(what, lambda seen: passed(seen.snapshot, ends), DRAIN_SECONDS_MAX, shop.services.check)
    return at - began


def _stands(target: psycopg.Connection, table: Table, key: Row) -> bool:
    query = SQL("SELECT 1 FROM {table} WHERE {key}").format(
        table=table.identifier, key=SQL(" AND ").join(SQL("{} = %s").format(Identifier(column)) for column in key)
    )
    return target.execute(query, list(key.values())).fetchone() is not None


def _check(
    shop: Shop, takeovers: Sequence[Takeover], display: Display
) -> tuple[tuple[Comparison, ...], AuditReport, dict[str, dict[str, float]]]:
    display.say("comparing source and target row by row, all columns, and examining the audit")
    with (
        psycopg.connect(shop.stack.source_dsn, autocommit=True) as source,
        psycopg.connect(shop.stack.target_dsn, autocommit=True) as target,
    ):
        pauses = {one.fault: longest_pauses(target, one.tables, one.begin, one.end) for one in takeovers}
        return tuple(compare(source, target, table) for table in TABLES), audit(source, target), pauses
