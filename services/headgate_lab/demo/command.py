"""``headgate demo`` and ``headgate up``: the main job on real parts, in front of you."""

import json
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import typer

from headgate.capture.source import DEFAULT_NAME
from headgate.cli.changes import Destruction, show_would
from headgate.cli.column_types import ColumnTypes
from headgate.cli.output import Output as CommandOutput
from headgate.cli.source import PublicationName, SlotName, Tables
from headgate_lab.demo.display import Display
from headgate_lab.demo.evaluation.command import (
    OwnDatabases,
    left_behind,
    prepared,
    remove_evaluation,
    shown,
)
from headgate_lab.demo.evaluation.running import EvaluationPlan, running
from headgate_lab.demo.faults import FaultKind
from headgate_lab.demo.folder import Scratch
from headgate_lab.demo.load import LoadError
from headgate_lab.demo.report import show_report
from headgate_lab.demo.scenario import DemoOptions, Shop, demonstrate, running_shop
from headgate_lab.demo.services import LEASE_SECONDS, Services
from headgate_lab.demo.stack import FEED
from headgate_lab.demo.watch import WatchError
from headgate_lab.parts.processes import ServiceError, ServiceProcess

DURATION_SECONDS_DEFAULT: Final = 48.0
DURATION_SECONDS_SHORT: Final = 12.0
RATE_DEFAULT: Final = 150.0
"""Changes per second: two cores carry everything at once, and no lease is lost on them."""

RATE_GENTLE: Final = 20.0
AGENTS_DEFAULT: Final = 3
AGENTS_SHORT: Final = 2
SEED_MAX: Final = 1_000_000

SETTINGS_OF_COMMANDS: Final = (
    "HEADGATE_BOOTSTRAP",
    "HEADGATE_SHARDS",
    "HEADGATE_SECRETS_DIR",
    "HEADGATE_CONNECTIONS",
)
"""What commands in another terminal need to know: where the cluster is, and where connections and secrets are."""

EXIT_FAILED: Final = 50
"""Something that was checked does not hold, or a fault was not made up for (docs/exit-codes.md)."""

EXIT_INTERRUPTED: Final = 130
"""The exit code of shells for Ctrl-C."""


class PartGoneError(Exception):
    """A server that the services run on has ended; the message names it, and the path of its log."""


class Output(StrEnum):
    """``-o``: figures as a table for people or as JSON for programs."""

    TABLE = "table"
    JSON = "json"


Rate = Annotated[float, typer.Option(min=1, max=2_000, help="changes written to the source per second")]
Agents = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=8,
        help="agents to start; one is killed, another frozen",
        show_default=f"{AGENTS_DEFAULT}, with --short {AGENTS_SHORT}",
    ),
]
UpAgents = Annotated[int, typer.Option("--agents", min=1, max=8, help="agents to start")]
Seed = Annotated[int | None, typer.Option(help="of everything the writers do; a random one is chosen and printed")]
SourceDsn = Annotated[
    str | None, typer.Option("--source", metavar="DSN|NAME", help="a database of your own to replicate from")
]
SinkDsn = Annotated[
    str | None, typer.Option("--sink", metavar="DSN|NAME", help="a database of your own to replicate to")
]
SourcePasswordFile = Annotated[
    Path | None, typer.Option("--source-password-file", help="a file in HEADGATE_SECRETS_DIR")
]
SinkPasswordFile = Annotated[Path | None, typer.Option("--sink-password-file", help="a file in HEADGATE_SECRETS_DIR")]
Keep = Annotated[bool, typer.Option("--keep", help="keep the folder with databases, broker and logs")]


def demo(
    *,
    duration: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="seconds of undisturbed writing in all",
            show_default=f"{DURATION_SECONDS_DEFAULT:g}, with --short {DURATION_SECONDS_SHORT:g}",
        ),
    ] = None,
    rate: Rate = RATE_DEFAULT,
    agents: Agents = None,
    seed: Seed = None,
    keep: Keep = False,
    short: Annotated[bool, typer.Option("--short", help="two agents and little time between faults")] = False,
    lease_seconds: Annotated[
        float, typer.Option("--lease-seconds", min=2, max=60, help="the services' lease; a take-over begins after it")
    ] = LEASE_SECONDS,
    fault: Annotated[list[FaultKind] | None, typer.Option(help="only this fault; may be given several times")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="table or json")] = Output.TABLE,
) -> None:
    """Keep a live PostgreSQL in step through Kafka and Spark, with agents and the owner killed on the way.

    Exit code 0 only if source and target are equal, nothing was written twice, no lease was lost without a reason, and
    every fault was made up for.
    """
    options = DemoOptions(
        duration=duration or (DURATION_SECONDS_SHORT if short else DURATION_SECONDS_DEFAULT),
        rate=rate,
        agents=agents or (AGENTS_SHORT if short else AGENTS_DEFAULT),
        seed=_seed(seed),
        keep=keep,
        faults=tuple(kind for kind in FaultKind if not fault or kind in fault),
        lease_seconds=lease_seconds,
    )
    display = Display(to_stderr=output is not Output.TABLE)
    try:
        report = demonstrate(options, display)
    except (WatchError, ServiceError, LoadError) as error:
        display.fail(str(error))
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(EXIT_INTERRUPTED) from error
    if output is not Output.TABLE:
        sys.stdout.write(json.dumps(report.to_json(), ensure_ascii=False, indent=2) + "\n")
    else:
        show_report(display.console, report)
    if not report.holds():
        raise typer.Exit(EXIT_FAILED)


def up(
    *,
    source: SourceDsn = None,
    sink: SinkDsn = None,
    source_password_file: SourcePasswordFile = None,
    sink_password_file: SinkPasswordFile = None,
    tables: Tables = None,
    types: ColumnTypes = None,
    feed: Annotated[
        str | None, typer.Option(metavar="NAME", help="name of the feed", show_default="the source database's")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="for the files and the broker", show_default="headgate-FEED")
    ] = None,
    publication: PublicationName = DEFAULT_NAME,
    slot: SlotName = DEFAULT_NAME,
    remove: Annotated[bool, typer.Option("--remove", help="remove what an earlier run left at the source")] = False,
    rate: Rate = RATE_GENTLE,
    agents: UpAgents = AGENTS_SHORT,
    seed: Seed = None,
    keep: Keep = False,
    change: Destruction,
) -> None:
    """Start everything that Headgate needs on this machine, until Ctrl-C.

    With --source and --sink it replicates your own databases, for evaluation. The source is checked first, then a
    broker, Kafka Connect with Debezium, a coordinator and agents are started, a connector and a feed are written and
    registered. The feed creates the tables. Passwords come from the files that the options name,
    from ~/.pgpass, PGPASSFILE, PGPASSWORD or MYSQL_PWD, or are asked for.

    Without them it starts what the demo runs on: two databases of its own with a gentle load (--rate, --seed, --keep).

    Services may be killed; when the broker or a database of its own is gone, it stops the rest and ends with code 50.

    Example: headgate up --source postgresql://debezium@db/shop --sink postgresql://headgate@warehouse/shop
    """
    display = Display(to_stderr=False)
    if source is None and sink is None and not remove:
        return _up_shop(DemoOptions(duration=0, rate=rate, agents=agents, seed=_seed(seed), keep=keep), display)
    if source is None or (sink is None and not remove):
        raise typer.BadParameter(
            "name the source with --source" if remove else "give both --source and --sink, or neither"
        )
    given = OwnDatabases(
        source=source,
        sink=sink or "",
        source_password_file=source_password_file,
        sink_password_file=sink_password_file,
        tables=tuple(tables or ()),
        types=tuple(types or ()),
        publication=publication,
        slot=slot,
        feed=feed,
        folder=folder,
        agents=agents,
    )
    return remove_evaluation(given, change, display) if remove else _up_own(given, change, display)


def _up_shop(options: DemoOptions, display: Display) -> None:
    try:
        with running_shop(options, display, []) as shop:
            _show_addresses(display, shop)
            _look_after(shop.services, shop.stack.gone, shop.load.check, shop.scratch, display)
    except (WatchError, ServiceError, LoadError, PartGoneError) as error:
        display.fail(str(error))
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        # Ctrl-C is how it is meant to end.
        display.say("stopped")


def _up_own(given: OwnDatabases, change: Destruction, display: Display) -> None:
    """With ``--dry-run`` only the checks."""
    plan: EvaluationPlan | None = None
    try:
        plan = prepared(given, display)
        if change.dry_run:
            return show_would(f"start feed {plan.feed} from {plan.folder}", CommandOutput.TABLE)
        with running(plan, display) as up:
            display.head("Everything is up")
            display.console.print("\n".join(shown(up, plan)), soft_wrap=True, markup=False)
            _look_after(up.services, up.gone, up.check, up.scratch, display)
    except (WatchError, ServiceError, PartGoneError) as error:
        display.fail(str(error))
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        display.say("stopped")
        if plan is None:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        display.console.print("\n".join(left_behind(plan)), soft_wrap=True, markup=False)


def _seed(given: int | None) -> int:
    return secrets.randbelow(SEED_MAX) if given is None else given


def _look_after(
    services: Services, gone: Callable[[], list[str]], check: Callable[[], None], scratch: Scratch, display: Display
) -> None:
    """Run until interrupted. Raises PartGoneError if a part that everything needs has ended.

    Services may be killed by the user: that is reported, and the others take over. The log of one that has ended
    is named, so logs are kept then. ``check`` is called every second. Its exceptions end the run as well.
    """
    told: set[int] = set()
    while True:
        if ended := gone():
            raise PartGoneError(f"{'; '.join(ended)}. The rest cannot run without it, so everything is stopped")
        check()
        for service in services.all:
            if service.exit_code is not None and service.pid not in told:
                told.add(service.pid)
                scratch.failed = True
                display.say(_ending(service))
                if all(one.exit_code is not None for one in services.all if one.kind == service.kind):
                    display.say(f"no {service.kind} is left: nothing is replicated until there is one; Ctrl-C ends it")
        time.sleep(1)


def _ending(service: ServiceProcess) -> str:
    """How a service has ended; with the end of its log, unless it was killed."""
    code = service.exit_code or 0
    if code < 0:
        return f"{service.name} was ended by {signal.Signals(-code).name}; its log: {service.log_file}"
    return service.explain(f"has ended with exit code {code}")


def _to_another_agent(agents: Sequence[ServiceProcess]) -> list[str]:
    """Commands that move tables, if there is an agent that they could go to."""
    if len(agents) == 1:
        return [f"  kill -9 {agents[0].pid}    # and watch `headgate why shop`"]
    return [
        f"  headgate table move shop shop.orders {agents[1].name}",
        f"  kill -9 {agents[-1].pid}    # and watch its tables go elsewhere",
    ]


def _show_addresses(display: Display, shop: Shop) -> None:
    lines = [
        f"Kafka             {shop.stack.bootstrap}",
        f"Kafka Connect     {shop.stack.connect.url}",
        f"source PostgreSQL {shop.stack.source_dsn}",
        f"target PostgreSQL {shop.stack.target_dsn}",
        f"logs              {shop.services.log_folder}",
        *(
            f"{service.name:<17} {shop.services.address(service.name)}/readyz, /metrics; process {service.pid}"
            for service in shop.services.all
        ),
        "",
        "Try, in another terminal:",
        f"  export {' '.join(f'{name}={quote(shop.services.settings[name])}' for name in SETTINGS_OF_COMMANDS)}",
        "  headgate feed show shop",
        "  headgate topic tail dispatch",
        *_to_another_agent([service for service in shop.services.all if service.name.startswith("agent-")]),
        f"Write a feed of your own as in {shop.scratch.folder / f'{FEED}.yaml'}. It names the databases as",
        "HEADGATE_CONNECTIONS describes them, and may create tables in any schema of the target.",
        "",
        "Ctrl-C stops everything.",
    ]
    display.head("Everything is up")
    display.console.print("\n".join(lines), soft_wrap=True, markup=False)
