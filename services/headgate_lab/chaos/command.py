"""``headgate chaos``: three agents and two coordinators under faults drawn from a seed, and a verdict."""

import json
import secrets
import sys
from collections.abc import Callable
from typing import Annotated, Final, Protocol, TypeVar

import typer
from rich.console import Console

from headgate_lab.chaos.campaign import run_campaign
from headgate_lab.chaos.capture import CaptureError
from headgate_lab.chaos.frozen_sink import run_frozen_sink, show_frozen_sink
from headgate_lab.chaos.migration_report import show_migrations
from headgate_lab.chaos.migrations import MigrationsOptions, run_migrations
from headgate_lab.chaos.report import show_chaos
from headgate_lab.chaos.targets import SinkType
from headgate_lab.chaos.world import ChaosOptions
from headgate_lab.demo.command import EXIT_FAILED, EXIT_INTERRUPTED, SEED_MAX, Output
from headgate_lab.demo.display import Display
from headgate_lab.demo.load import LoadError
from headgate_lab.demo.services import LEASE_SECONDS
from headgate_lab.demo.watch import WatchError
from headgate_lab.parts.processes import ServiceError

__all__ = ["chaos"]

MINUTES_DEFAULT: Final = 10.0
RATE_DEFAULT: Final = 100.0
"""Changes per second: twenty in each table, so that a gap of a second is seen."""


def chaos(
    *,
    seed: Annotated[
        int | None, typer.Option(help="of faults, load and operations; drawn and printed if not given")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="of faults; everything strikes once in about ten")
    ] = MINUTES_DEFAULT,
    short: Annotated[bool, typer.Option("--short", help="instead: one of each main sort, in two minutes")] = False,
    points: Annotated[
        bool, typer.Option("--points", help="instead: every point of the commit path, every death")
    ] = False,
    frozen_sink: Annotated[
        bool, typer.Option("--frozen-sink", help="instead: measure a healthy feed beside a sink that stops answering")
    ] = False,
    migrations: Annotated[
        bool,
        typer.Option("--migrations", help="instead: random schema changes at both databases, --minutes or --short"),
    ] = False,
    sink: Annotated[
        SinkType, typer.Option(help="what the feed writes to; mysql: a MariaDB. The source is a PostgreSQL")
    ] = SinkType.POSTGRESQL,
    rate: Annotated[
        float, typer.Option(min=1, max=2_000, help="changes written to the source per second")
    ] = RATE_DEFAULT,
    lease_seconds: Annotated[
        float, typer.Option(min=1, max=60, help="longer where the machine has other work, or leases are lost to it")
    ] = LEASE_SECONDS,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="keep the folder with databases, broker and logs (logs stay anyway if it does not hold)"
        ),
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="table or json")] = Output.TABLE,
) -> None:
    """Kill, freeze, cut off and restart everything in turn and at once, while feeds are paused and tables moved.

    Exit code 0 only if source and target are equal in the end, nothing was written twice, and no lease was lost that no
    fault explains.
    """
    display = Display(to_stderr=output is Output.JSON)
    if frozen_sink:
        _run(display, output, lambda: run_frozen_sink(display, sink, keep=keep), show_frozen_sink)
        return
    seed = secrets.randbelow(SEED_MAX) if seed is None else seed
    if migrations:
        asked = MigrationsOptions(seed, None if short else minutes, lease_seconds, keep)
        _run(display, output, lambda: run_migrations(asked, display), show_migrations, f"seed {seed}, migrations")
        return
    options = ChaosOptions(
        seed=seed,
        rate=rate,
        lease_seconds=lease_seconds,
        keep=keep,
        minutes=None if short else minutes,
        points=points,
        sink=sink,
    )
    _run(display, output, lambda: run_campaign(options, display), show_chaos, f"seed {seed}, sink {sink}")


class _Report(Protocol):
    def to_json(self) -> dict[str, object]: ...

    def holds(self) -> bool: ...


_ReportT = TypeVar("_ReportT", bound=_Report)


def _run(
    display: Display,
    output: Output,
    run: Callable[[], _ReportT],
    show: Callable[[Console, _ReportT], None],
    repeat_by: str = "",
) -> None:
    """Run, show the report, and end with an exit code unless it holds. ``repeat_by``: options that repeat the run."""
    if repeat_by:
        display.say(repeat_by)
    try:
        report = run()
    except (WatchError, ServiceError, LoadError, CaptureError) as error:
        display.fail(f"{error} ({repeat_by})" if repeat_by else str(error))
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(EXIT_INTERRUPTED) from error
    if output is Output.JSON:
        sys.stdout.write(json.dumps(report.to_json(), ensure_ascii=False, indent=2) + "\n")
    else:
        show(display.console, report)
    if not report.holds():
        raise typer.Exit(EXIT_FAILED)
