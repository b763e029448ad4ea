"""``headgate generation rebalance`` and ``autoscale``: split and merge the streams of a change log by their load.

Writers report what they write. ``--measure-log`` measures the log itself instead, for writers of another kind or an
older version: how far the partitions' ends move, which counts the marks of transactions too, and which keys come last.
"""

from typing import Annotated

import msgspec
import typer
from msgspec.structs import asdict

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import ChangeOptions, permitted
from headgate.cli.generation_requests import SetName, ask_policy, map_of, opened, record_of, show_done, switch
from headgate.cli.options import ClusterOptions, CommandGroup, Format
from headgate.cli.output import Output, note, show_object
from headgate.cli.requests import OutcomeOptions
from headgate.eventlog.clock import wall_ms
from headgate.generation.changelog.core.life import REPORT_SECONDS
from headgate.generation.changelog.core.planning import Policy, PolicyError, plan
from headgate.generation.changelog.core.reported_loads import SILENT_SECONDS, ReportedLoads, ages_of, sum_loads
from headgate.generation.changelog.shell.measured_loads import measured_loads
from headgate.generation.core.ranges import LogMap
from headgate.generation.shell.tail import GenerationTail
from headgate.records.generation import LoadPolicy

__all__ = ["autoscale", "rebalance", "reported_loads"]

autoscale = CommandGroup(help="Let the owner split and merge streams by load.", no_args_is_help=True)


def rebalance(
    name: SetName,
    *,
    split_above: Annotated[float, typer.Option("--split-above", help="changes per second of one stream")],
    merge_below: Annotated[float, typer.Option("--merge-below", help="changes per second of neighbours together")] = 0,
    streams_max: Annotated[
        int, typer.Option("--streams-max", min=1, help="split no further than this many streams")
    ] = 64,
    streams_min: Annotated[
        int, typer.Option("--streams-min", min=1, help="merge no further than this many streams")
    ] = 1,
    measure_log: Annotated[
        float | None,
        typer.Option(
            "--measure-log", min=0.5, help="seconds to measure the log for, instead of using the writers' reports"
        ),
    ] = None,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Split and merge streams based on their load.

    Example: headgate generation rebalance orders --split-above 5000 --merge-below 500 --dry-run
    """
    try:
        policy = Policy(split_above, merge_below, streams_max, streams_min, settle_seconds=0).checked()
    except PolicyError as error:
        raise CommandError(ExitCode.SETTING, str(error)) from error
    with opened(name, cluster) as (log, tail):
        known = map_of(tail, name, None)
        if measure_log is None:
            reported = reported_loads(tail, name)
            _tell(name, known, reported)
            made = plan(policy, known, reported.streams, merge=reported.is_complete)
        else:
            made = plan(policy, known, measured_loads(log.connection, record_of(tail, name).topic, known, measure_log))
        for each in made.changes:
            what = "merge" if not each.cuts else f"cut behind {', '.join(map(str, each.cuts))}"
            note(f"{what}: {', '.join(map(str, each.streams))} ({each.why})")
        for left in made.left:
            note(f"left: {left}")
        switch(log, tail, name, made.changes, change, outcome=outcome)


@autoscale.command("show")
def show_autoscaling(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """Show whether autoscaling is on, off or suspended, and its limits.

    Example: headgate generation autoscale show orders
    """
    with opened(name, cluster) as (_, tail):
        record_of(tail, name)
        _show_autoscaling(tail, name, output)


@autoscale.command()
def enable(
    name: SetName,
    *,
    split_above: Annotated[float, typer.Option("--split-above", help="changes per second of one stream")],
    merge_below: Annotated[float, typer.Option("--merge-below", help="changes per second of neighbours together")] = 0,
    streams_max: Annotated[
        int | None,
        typer.Option(
            "--streams-max",
            min=1,
            help="split no further than this many streams",
            show_default="half of the partitions",
        ),
    ] = None,
    streams_min: Annotated[
        int, typer.Option("--streams-min", min=1, help="merge no further than this many streams")
    ] = 1,
    settle: Annotated[
        float, typer.Option("--settle", help="seconds before a new stream can be split or merged")
    ] = 60.0,
    cool_down: Annotated[float, typer.Option("--cool-down", help="seconds between two automatic switches")] = 120.0,
    changes_max: Annotated[int, typer.Option("--changes-max", min=1, help="most splits and merges in one switch")] = 8,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Enable autoscaling, or change its limits: the owner splits and merges streams by their load.

    Example: headgate generation autoscale enable orders --split-above 5000 --merge-below 500
    """
    with opened(name, cluster) as (log, tail):
        most = streams_max or max(1, record_of(tail, name).partitions // 2)
        policy = _policy(Policy(split_above, merge_below, most, streams_min, settle, changes_max, cool_down))
        permit = permitted(change, f"set {msgspec.json.encode(policy).decode()}", outcome.output, {"set": name})
        if permit is not None:
            show_done(outcome.output, name, ask_policy(log, name, policy, outcome.timeout, permit))


@autoscale.command()
def disable(
    name: SetName,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Disable autoscaling.

    Example: headgate generation autoscale disable orders
    """
    with opened(name, cluster) as (log, tail):
        record_of(tail, name)
        permit = permitted(change, f"disable autoscaling of {name}", outcome.output, {"set": name})
        if permit is not None:
            show_done(outcome.output, name, ask_policy(log, name, None, outcome.timeout, permit))


def _policy(policy: Policy) -> LoadPolicy:
    try:
        return LoadPolicy(**asdict(policy.checked()))
    except PolicyError as error:
        raise CommandError(ExitCode.SETTING, str(error)) from error


def _show_autoscaling(tail: GenerationTail, name: str, output: Output) -> None:
    found = tail.state.automatic.get(name)
    if found is None:
        show_object({"set": name, "state": "off"}, output)
        return
    state = f"suspended: {found.suspended}; enable it again to resume" if found.suspended else "on"
    show_object({"set": name, "state": state, "set_by": found.set_by, **asdict(found.policy)}, output)


def reported_loads(tail: GenerationTail, name: str) -> ReportedLoads:
    """What writers have reported of the generation in force."""
    known = map_of(tail, name, None)
    reports = tail.state.writers.get(name, {})
    ages = ages_of(reports, wall_ms())
    # A report is of the generation in force, so all of its streams have been open for as long as it measured.
    opened_for = dict.fromkeys((stream.id for stream in known.streams), REPORT_SECONDS)
    return sum_loads(record_of(tail, name), known, reports, ages, opened_for)


def _tell(name: str, known: LogMap, reported: ReportedLoads) -> None:
    """The known loads and their writers. Raises CommandError if no writer has reported."""
    for each in reported.writers:
        note(f"writer {each.writer}: {each.per_second:.1f} changes/s, reported {each.age_seconds:.0f} s ago")
    for writer in reported.silent:
        note(f"writer {writer}: silent for more than {SILENT_SECONDS:.0f} s; it counts as writing nothing")
    for writer in reported.unknown:
        note(f"writer {writer}: not known yet, so nothing is merged (it reports every {REPORT_SECONDS:.0f} s)")
    for writer, wrong in sorted(reported.refused.items()):
        note(f"writer {writer}: its report is refused, so nothing is merged: {wrong}")
    if not reported.writers:
        raise CommandError(
            ExitCode.NOT_REPORTED,
            f"no writer has reported the load of change log {name!r} in the last {SILENT_SECONDS:.0f} s by its "
            f"generation {known.generation}: start its writers (they report every {REPORT_SECONDS:.0f} s), "
            "or measure the log itself with --measure-log 5",
        )
