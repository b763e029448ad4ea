"""``headgate demo`` and ``headgate up``: the main job on real parts, in front of you."""

import json
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from shlex import quote
from typing import Annotated, Final

import typer

from headgate_lab.demo.display import Display
from headgate_lab.demo.faults import FaultKind
from headgate_lab.demo.load import LoadError
from headgate_lab.demo.processes import ServiceError, ServiceProcess
from headgate_lab.demo.report import show_report
from headgate_lab.demo.scenario import Options, Shop, demonstrate, running_shop
from headgate_lab.demo.services import CONNECTION
from headgate_lab.demo.stack import FEED
from headgate_lab.demo.watch import WatchError

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
"""As shells say it of Ctrl-C."""


class PartGoneError(Exception):
    """A server that the services run on has ended: says which, and where its log is."""


class Output(StrEnum):
    """``-o``: figures as a table for people or as JSON for programs."""

    TABLE = "table"
    JSON = "json"


Rate = Annotated[float, typer.Option(min=1, max=2_000, help="changes written to the source per second")]
Agents = Annotated[int | None, typer.Option(min=2, max=8, help="agents to start; one is killed, another frozen")]
UpAgents = Annotated[int | None, typer.Option("--agents", min=1, max=8, help="agents to start")]
Seed = Annotated[int | None, typer.Option(help="of everything the writers do; a random one is chosen and printed")]
Keep = Annotated[bool, typer.Option("--keep", help="keep the folder with databases, broker and logs")]


def demo(
    *,
    duration: Annotated[float | None, typer.Option(min=1, help="seconds of undisturbed writing in all")] = None,
    rate: Rate = RATE_DEFAULT,
    agents: Agents = None,
    seed: Seed = None,
    keep: Keep = False,
    short: Annotated[bool, typer.Option("--short", help="two agents and little time between faults")] = False,
    fault: Annotated[list[FaultKind] | None, typer.Option(help="only this fault; may be given several times")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="table or json")] = Output.TABLE,
) -> None:
    """Keep a live PostgreSQL in step through Kafka and Spark, with agents and the owner killed on the way.

    Exit code 0 only if source and target are equal, nothing was written twice, no lease was lost without a reason, and
    every fault was made up for.
    """
    options = Options(
        duration=duration or (DURATION_SECONDS_SHORT if short else DURATION_SECONDS_DEFAULT),
        rate=rate,
        agents=agents or (AGENTS_SHORT if short else AGENTS_DEFAULT),
        seed=_seed(seed),
        keep=keep,
        faults=tuple(kind for kind in FaultKind if not fault or kind in fault),
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


def up(*, rate: Rate = RATE_GENTLE, agents: UpAgents = None, seed: Seed = None, keep: Keep = False) -> None:
    """Start what the demo runs on, with a gentle load, and leave it running until Ctrl-C.

    Services may be killed; when broker, Connect or a database is gone it says so, stops the rest and ends with code 50.
    """
    options = Options(duration=0, rate=rate, agents=agents or AGENTS_SHORT, seed=_seed(seed), keep=keep)
    display = Display(to_stderr=False)
    try:
        with running_shop(options, display, []) as shop:
            _show_addresses(display, shop)
            _look_after(shop, display)
    except (WatchError, ServiceError, LoadError, PartGoneError) as error:
        display.fail(str(error))
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        # Ctrl-C is how it is meant to end.
        display.say("stopped")


def _seed(given: int | None) -> int:
    return secrets.randbelow(SEED_MAX) if given is None else given


def _look_after(shop: Shop, display: Display) -> None:
    """Until interrupted, or a part is gone without which nothing goes on: raises PartGoneError, LoadError.

    Services may be killed by whoever plays with them; that is said, and the others take over.
    """
    told: set[int] = set()
    while True:
        if gone := shop.stack.gone():
            raise PartGoneError(f"{'; '.join(gone)}. Nothing goes on without it, so everything is stopped")
        shop.load.check()
        for service in shop.services.all:
            if service.exit_code is not None and service.pid not in told:
                told.add(service.pid)
                display.say(_ending(service))
                if all(one.exit_code is not None for one in shop.services.all if one.kind == service.kind):
                    display.say(f"no {service.kind} is left: nothing is replicated until there is one; Ctrl-C ends it")
        time.sleep(1)


def _ending(service: ServiceProcess) -> str:
    """How a service has ended; with the end of its log, unless somebody has killed it."""
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
        f"Write a feed of your own as in {shop.scratch.folder / f'{FEED}.yaml'}. The target is",
        f"connection {CONNECTION}, which HEADGATE_CONNECTIONS describes.",
        "",
        "Ctrl-C stops everything.",
    ]
    display.head("Everything is up")
    display.console.print("\n".join(lines), soft_wrap=True, markup=False)
