"""``headgate sim``: the control plane in a world of faults, seed by seed, every guarantee checked at every step."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from headgate.app.exit_codes import ExitCode
from headgate.cli.options import Format
from headgate.cli.output import Output, note, show_object, show_value
from headgate_lab.simulation.campaign import TICKS, Campaign, Played, play, shrink
from headgate_lab.simulation.other_worlds import OtherCampaign, OtherPlayed, OtherWorld, play_all
from headgate_lab.simulation.profile import Profile, draw_profile

TRACE_LINES_SHOWN = 60

STEPS_PER_S_GOAL = 15_000
"""On one core: a minute in CI then is about a million steps."""


class SimulatedWorld(StrEnum):
    """What is simulated."""

    TABLES = "tables"
    SWITCHES = OtherWorld.SWITCHES.value
    MIGRATIONS = OtherWorld.MIGRATIONS.value


def sim(
    *,
    world: Annotated[
        SimulatedWorld, typer.Option("--world", help="tables on agents, switches of a change log, or migrations")
    ] = SimulatedWorld.TABLES,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="histories to play")] = 300,
    start: Annotated[int, typer.Option("--start", min=0, help="the first seed")] = 0,
    ticks: Annotated[
        int | None, typer.Option("--ticks", min=1, help=f"length of the phase with faults [{TICKS}]; tables only")
    ] = None,
    shrink_seed: Annotated[
        int | None,
        typer.Option("--shrink", metavar="SEED", help="find the least form of this seed's finding; tables only"),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Play histories; exit 0 only if every guarantee held and (from 300 seeds on) every rare state was reached."""
    if world is not SimulatedWorld.TABLES:
        if ticks is not None or shrink_seed is not None:
            raise typer.BadParameter(f"--ticks and --shrink are for --world {SimulatedWorld.TABLES.value}")
        with _silent():
            _play_other(OtherWorld(world.value), range(start, start + seeds), output)
        return
    with _silent():
        if shrink_seed is not None:
            _shrink(shrink_seed, ticks or TICKS, output)
        else:
            _play_tables(range(start, start + seeds), ticks or TICKS, output)


@contextmanager
def _silent() -> Iterator[None]:
    """Leave out the logs of simulated processes, which are thousands of lines about planned faults."""
    logs = logging.getLogger("headgate")
    before = logs.level
    logs.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logs.setLevel(before)


def _play_tables(seeds: range, ticks: int, output: Output) -> None:
    campaign, began, digest = Campaign(), time.process_time(), ""
    for seed in seeds:
        played = play(draw_profile(seed, ticks=ticks))
        campaign.add(played)
        digest = played.digest
        if played.finding is not None or len(seeds) == 1:
            note(_line(played))
    seconds = time.process_time() - began
    _show(campaign, seconds, digest if len(seeds) == 1 else None, output)
    if not campaign.holds:
        raise typer.Exit(int(ExitCode.DIFFERENCE))


def _play_other(world: OtherWorld, seeds: range, output: Output) -> None:
    def tell(played: OtherPlayed) -> None:
        if played.finding is not None or len(seeds) == 1:
            found = played.finding or "holds"
            note(f"seed {played.seed}: {found} after {played.steps} steps, digest {played.digest}")

    began = time.process_time()
    campaign = play_all(world, seeds, tell)
    seconds = time.process_time() - began
    _show_other(campaign, seconds, output)
    if campaign.findings:
        raise typer.Exit(int(ExitCode.DIFFERENCE))


def _show_other(campaign: OtherCampaign, seconds: float, output: Output) -> None:
    facts: dict[str, Any] = {
        "seeds": campaign.seeds,
        "steps": campaign.steps,
        "steps_per_s": round(campaign.steps / max(seconds, 1e-9)),
        "violations": len(campaign.findings),
    }
    if output is Output.TABLE:
        show_object(facts, output)
    else:
        show_value(output, facts | {"findings": msgspec.to_builtins(campaign.findings)})


def _show(campaign: Campaign, seconds: float, digest: str | None, output: Output) -> None:
    facts: dict[str, Any] = {
        "seeds": campaign.seeds,
        "steps": campaign.steps,
        "steps_per_s": round(campaign.steps / max(seconds, 1e-9)),
        "violations": len(campaign.findings),
        "marks_missing": campaign.marks_missing,
    }
    if digest is not None:
        facts["digest"] = digest
    if output is not Output.TABLE:
        show_value(
            output,
            {"bench": "sim", "figures": _figures(facts)}
            | facts
            | {"findings": msgspec.to_builtins(campaign.findings), "marks": dict(sorted(campaign.marks.items()))},
        )
        return
    facts["marks_missing"] = ", ".join(campaign.marks_missing) or "none"
    show_object(facts, output)


def _figures(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts in the shape of every bench; with the missing marks beside them."""
    goals = {"violations": 0, "steps_per_s": STEPS_PER_S_GOAL, "seeds": None, "marks_missing": 0}
    values = facts | {"marks_missing": len(facts["marks_missing"])}
    return {
        name: {"value": values[name], "unit": "1/s" if name == "steps_per_s" else "", "goal": goal, "n": 1, "spread": 0}
        for name, goal in goals.items()
    }


def _shrink(seed: int, ticks: int, output: Output) -> None:
    least = shrink(draw_profile(seed, ticks=ticks), note)
    if least is None or least.finding is None:
        note(f"seed {seed} holds over {ticks} ticks: nothing to shrink")
        return
    if output is not Output.TABLE:
        show_value(output, msgspec.to_builtins(least))
    else:
        note(_line(least))
        for line in least.trace[-TRACE_LINES_SHOWN:]:
            note(line)
    raise typer.Exit(int(ExitCode.DIFFERENCE))


def _line(played: Played) -> str:
    found = "holds" if played.finding is None else f"{played.finding.what} at {played.finding.at} s"
    head = f"seed {played.profile.seed}: {found} after {played.steps} steps, digest {played.digest}"
    return f"{head}\n  {_profile(played.profile)}"


def _profile(profile: Profile) -> str:
    sizes = ", ".join(f"{n} {v}" for n, v in msgspec.structs.asdict(profile).items() if n not in ("seed", "rates"))
    rates = ", ".join(f"{kind} {rate:.4f}" for kind, rate in sorted(profile.rates.items()))
    return f"{sizes}; faults: {rates or 'none'}"
