"""The demo's course: start everything, write, inflict faults, stop the writers, compare everything.

``running_shop`` has it all up and takes it all down again, however it ends; ``play`` is what happens in between.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from headgate.app.command_error import ExitCode
from headgate.eventlog.kafka import open_log
from headgate.eventlog.topics import create_topics
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.display import Display
from headgate_lab.demo.ending import await_drained, examine_all, row_stands
from headgate_lab.demo.faults import FaultKind, Faults, Takeover
from headgate_lab.demo.folder import ClusterAt, Scratch, scratch_parts
from headgate_lab.demo.load import ShopLoad
from headgate_lab.demo.new_column import add_column
from headgate_lab.demo.pauses import longest_pauses
from headgate_lab.demo.report import DemoReport, Verified
from headgate_lab.demo.schema import NEW_COLUMN, TABLE_WITH_NEW_COLUMN, TABLES, with_altered
from headgate_lab.demo.services import LEASE_SECONDS, Services, create_feed, postgresql_address
from headgate_lab.demo.stack import FEED, Stack, running_stack
from headgate_lab.demo.tables import all_apply, all_replicate, views
from headgate_lab.demo.watch import Watch
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.processes import stop_all

REPLICATING_SECONDS_MAX: Final = 400.0
"""From the feed's creation until every table replicates: a few seconds."""

FIRST_ROWS_SECONDS_MAX: Final = 300.0
"""A Spark session's first batch compiles everything it does; on two cores that takes ten seconds."""

SILENCE_SECONDS_MAX: Final = 60.0
"""For a broker on a busy machine to answer again who reads the control topics."""

VERIFY_WAIT_SECONDS: Final = 120.0
"""For rows that keep changing to settle, while a feed that is a batch behind catches up."""

VERIFY_ANSWERS: Final = (int(ExitCode.DONE), int(ExitCode.DIFFERENCE), int(ExitCode.UNSETTLED))

WRITERS: Final = 2
TITLES: Final = {
    FaultKind.AGENT_KILLED: "An agent dies",
    FaultKind.AGENT_FROZEN: "An agent freezes, and continues when other agents have taken over its tables",
    FaultKind.OWNER_KILLED: "The owner dies",
}

LAG_SAMPLE_SECONDS: Final = 1.0


class DemoOptions(msgspec.Struct, frozen=True):
    """``duration`` seconds of undisturbed writing in all, ``rate`` changes per second, ``keep`` the folder.

    Writing is undisturbed before the first of ``faults``, between them and after the last.
    """

    duration: float
    rate: float
    agents: int
    seed: int
    keep: bool
    faults: tuple[FaultKind, ...] = tuple(FaultKind)
    lease_seconds: float = LEASE_SECONDS


class Shop(msgspec.Struct, frozen=True):
    """Everything that is up. The scratch folder has the logs of all processes in ``logs``."""

    scratch: Scratch
    stack: Stack
    services: Services
    watch: Watch
    load: ShopLoad
    faults: Faults


@contextmanager
def running_shop(options: DemoOptions, display: Display, left_over: list[str]) -> Iterator[Shop]:
    """All of it up, the feed created, every table replicating, the writers writing; then all of it down.

    ``left_over`` gets a line for each process that had to be killed or is still there. Logs stay if anything raises.
    """
    with scratch_parts("headgate-demo-", display.say, left_over, keep=options.keep) as scratch:
        yield _start(options, display, scratch, left_over)


def _start(options: DemoOptions, display: Display, scratch: Scratch, left_over: list[str]) -> Shop:
    folder, parts = scratch.folder, scratch.parts
    stack = parts.enter_context(running_stack(folder, options.seed, display.stage))
    cluster = ClusterAt(stack.bootstrap)
    create_topics(cluster)
    log = open_log(cluster)
    parts.callback(log.close)
    watch = Watch(log, silence_seconds_max=scaled_seconds(SILENCE_SECONDS_MAX))
    parts.callback(watch.close)
    services = Services(stack.bootstrap, options.agents, folder / "logs", lease_seconds=options.lease_seconds)
    parts.callback(lambda: left_over.extend(stop_all(services.all)))
    load = ShopLoad(stack.source_dsn, seed=options.seed, writers=WRITERS, rate=options.rate, keys=stack.keys)
    parts.callback(load.stop)
    agents = "one agent" if options.agents == 1 else f"{options.agents} agents"
    display.say(f"starting two coordinators and {agents}; their logs are in {services.log_folder}")
    services.start_coordinators()
    services.start_agents()
    display.say(f"{WRITERS} writers begin: {options.rate:g} changes per second, seed {options.seed}")
    load.start()
    faults = Faults(services, watch, stack.target_dsn, display.say)
    with display.stage("waiting for an owner, and for a Spark in each agent") as tell:
        faults.await_services(tell)
    began = time.monotonic()
    with display.stage(f"headgate feed create {FEED}.yaml: it creates the tables that the target lacks"):
        source = postgresql_address(stack.reader_dsn)
        create_feed(postgresql_address(stack.sink_dsn), services, folder, source=source)
    parts.enter_context(display.status(watch, load))

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
    display.say(f"all tables replicate {at - began:.1f} s after that command: {held}")
    at = watch.wait_for(
        "every table has applied rows", lambda seen: all_apply(seen.snapshot), FIRST_ROWS_SECONDS_MAX, check
    )
    display.say(f"all tables have applied their first rows {at - began:.1f} s after that command")
    return Shop(scratch, stack, services, watch, load, faults)


def demonstrate(options: DemoOptions, display: Display) -> DemoReport:
    """The whole demo. Raises what starting raises, WatchError, ServiceError, LoadError."""
    left_over: list[str] = []
    with running_shop(options, display, left_over) as shop:
        report = _play(shop, options, display)
        shop.scratch.failed = not report.holds()
    return msgspec.structs.replace(report, left_over=tuple(left_over))


def _play(shop: Shop, options: DemoOptions, display: Display) -> DemoReport:
    began, rows_before = time.monotonic(), shop.watch.rows_applied()
    lags: list[float] = []
    takeovers: list[Takeover] = []
    quiet = options.duration / (len(options.faults) + 1)
    _write_quietly(shop, quiet, lags)
    with shop.watch.condition:
        shop.watch.seen.lag_ms_max = 0
    for kind in options.faults:
        display.head(TITLES[kind])
        takeovers.append(shop.faults.inflict(kind))
        _write_quietly(shop, quiet, lags)
    seconds, rows = time.monotonic() - began, shop.watch.rows_applied() - rows_before
    column_seconds = _add_column(shop, display)
    verified = _verify(shop, display)
    display.head("The writers stop; waiting until the feed has passed their last commit")
    shop.load.stop()
    with postgres_client(shop.stack.target_dsn) as target:
        drain_seconds = await_drained(
            shop.watch,
            source_dsn=shop.stack.source_dsn,
            stands=partial(row_stands, target),
            bootstrap=shop.stack.bootstrap,
            seed=options.seed,
            check=shop.services.check,
        )
    false_losses = shop.faults.false_losses()
    display.say("comparing source and target row by row, all columns, and examining the audit")
    comparisons, audited = examine_all(
        shop.stack.source_dsn, shop.stack.target_dsn, with_altered(TABLES, TABLE_WITH_NEW_COLUMN)
    )
    with postgres_client(shop.stack.target_dsn) as target:
        pauses = {one.fault: longest_pauses(target, one.tables, one.begin, one.end) for one in takeovers}
    return DemoReport(
        seed=options.seed,
        faults=options.faults,
        comparisons=comparisons,
        audited=audited,
        verified=verified,
        column_seconds=column_seconds,
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


def _add_column(shop: Shop, display: Display) -> float:
    """Have the source's table altered under load; how long it took until the target had the column."""
    table = TABLE_WITH_NEW_COLUMN
    display.head("The source gets a column")
    display.say(f"ALTER TABLE {table.full_name} ADD COLUMN {NEW_COLUMN.name} {NEW_COLUMN.sql_type}")

    def check() -> None:
        shop.services.check()
        shop.load.check()

    seconds = add_column(
        table, shop.load, source_dsn=shop.stack.source_dsn, target_dsn=shop.stack.target_dsn, check=check
    )
    display.say(f"the target's table has it after {seconds:.1f} s, with the default in rows from before")
    return seconds


def _verify(shop: Shop, display: Display) -> Verified:
    """What `headgate verify` finds while the writers write. Raises ServiceError."""
    shop.load.check()
    began = time.monotonic()
    with display.stage(f"headgate verify {FEED}, while the writers write"):
        wait = f"{scaled_seconds(VERIFY_WAIT_SECONDS):g}"
        command = ("verify", FEED, "--wait", wait, "-o", "json")
        answer = run_command(shop.services.settings, *command, accepted=VERIFY_ANSWERS)
    found = msgspec.convert(answer, Verified)
    display.say(
        f"verify compared {found.rows} rows: {found.differences} differ, {found.unsettled} could not be settled"
    )
    return msgspec.structs.replace(found, seconds=time.monotonic() - began)


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
