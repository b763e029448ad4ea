"""``headgate bench``: the figures, as a table or as one JSON object."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate.cli.groups import CommandGroup
from headgate.cli.options import Format
from headgate.cli.output import Output, note, show_rows
from headgate.config.feed import BATCH_INTERVAL_SECONDS_MAX
from headgate_lab.benchmarks.control import ControlOptions, bench_control
from headgate_lab.benchmarks.figures import BenchReport
from headgate_lab.benchmarks.generation import GenerationOptions, bench_generation
from headgate_lab.benchmarks.kafka_sink import KafkaSinkOptions, bench_kafka_sink
from headgate_lab.benchmarks.lake_options import KIND_NAMES, LakeOptions, check_installed
from headgate_lab.benchmarks.latency import LatencyOptions, bench_latency
from headgate_lab.benchmarks.migration import MigrationBenchOptions, bench_migration
from headgate_lab.benchmarks.migration_tables import DATABASES
from headgate_lab.benchmarks.move import MoveOptions, bench_move
from headgate_lab.benchmarks.peers.race import RACES, SIDES, PeersOptions, bench_peers
from headgate_lab.benchmarks.pipeline import PipelineOptions, bench_pipeline
from headgate_lab.benchmarks.rest import RestOptions, bench_rest
from headgate_lab.benchmarks.snapshot import SnapshotOptions, bench_snapshot
from headgate_lab.benchmarks.tables import TablesOptions, bench_tables

app = CommandGroup(help="Measure: every bench starts its own real parts and prints medians with their spread.")


@app.command("pipeline")
def pipeline(
    changes: Annotated[int, typer.Option(min=1_000, help="changes in each prepared topic")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved runs of each side")] = 3,
    shaped: Annotated[bool, typer.Option("--shaped", help="also with a rename, a mask and a filter")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Changes per second into PostgreSQL, beside a hand-written COPY baseline on the same topic in the same run."""
    _show(bench_pipeline(PipelineOptions(changes=changes, rounds=rounds, shaped=shaped), note), output)


@app.command("peers")
def peers(  # noqa: PLR0917 - options of a command line
    changes: Annotated[int, typer.Option(min=1_000, help="changes in each prepared topic")] = 500_000,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved runs of each side")] = 5,
    only: Annotated[list[str] | None, typer.Option(help=f"sides beside Headgate: {', '.join(SIDES[1:])}")] = None,
    race: Annotated[list[str] | None, typer.Option(help=f"workloads: {', '.join(RACES)}; all if none")] = None,
    race_with: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="a checkout of another version, as one side more")
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Changes per second beside Kafka Connect with Debezium's JDBC sink, Flink SQL and hand-written COPY."""
    options = PeersOptions(tuple(race or RACES), changes, rounds, tuple(SIDES if only is None else only), race_with)
    _show(bench_peers(options, note), output)


@app.command("latency")
def latency(
    seconds: Annotated[float, typer.Option(min=5, help="counted seconds per number of tables")] = 30.0,
    rate: Annotated[int, typer.Option(min=10, help="changes per second in all")] = 1_000,
    tables: Annotated[list[int] | None, typer.Option(min=1, help="numbers of tables; 1, 20 and 200 if none")] = None,
    debezium: Annotated[bool, typer.Option("--debezium", help="Debezium's JDBC sink as well")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Milliseconds from the broker's append to the visible row, over 1, 20 and 200 tables."""
    options = LatencyOptions(rate, seconds, tuple(tables or (1, 20, 200)), debezium)
    _show(bench_latency(options, note), output)


@app.command("move")
def move(
    moves: Annotated[int, typer.Option(min=2, help="moves, there and back")] = 10,
    tables: Annotated[int, typer.Option(min=2, help="tables under load; the first one moves")] = 4,
    rate: Annotated[int, typer.Option(min=10, help="changes per second in all")] = 1_000,
    output: Format = Output.TABLE,
) -> None:
    """What a move costs: the moved table's pause, and its neighbours', under load."""
    _show(bench_move(MoveOptions(moves, tables, rate), note), output)


@app.command("tables")
def tables(
    tables: Annotated[int, typer.Option(min=1, help="tables of the feed, on one agent")] = 1_000,
    active: Annotated[int, typer.Option(min=1, help="tables written to")] = 100,
    rate: Annotated[int, typer.Option(min=10, help="changes per second in all")] = 1_000,
    seconds: Annotated[float, typer.Option(min=5, help="counted seconds")] = 20.0,
    output: Format = Output.TABLE,
) -> None:
    """Many tables on one agent: time to start, memory, processor time at rest, and how late the busy ones are."""
    _show(bench_tables(TablesOptions(tables, min(active, tables), rate, seconds), note), output)


@app.command("rest")
def rest(
    tables: Annotated[list[int] | None, typer.Option(min=1, help="numbers of tables; 1, 5, 100, 1000 if none")] = None,
    rate: Annotated[int, typer.Option(min=1, help="changes per second in all")] = 8,
    seconds: Annotated[float, typer.Option(min=5, help="counted seconds per number of tables")] = 60.0,
    interval: Annotated[
        float | None,
        typer.Option(min=0, max=BATCH_INTERVAL_SECONDS_MAX, help="the feed's batch_interval_seconds; auto if none"),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """What an agent costs at rest: shares of a core for its driver, JVM and workers, and of the broker."""
    given: float | Literal["auto"] = "auto" if interval is None else interval
    _show(bench_rest(RestOptions(tuple(tables or (1, 5, 100, 1_000)), rate, seconds, given), note), output)


@app.command("control")
def control(
    spans: Annotated[list[int] | None, typer.Option(min=1_024, help="sizes; 1024, 16384 and 131072 if none")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="runs of each size")] = 1,
    shards: Annotated[int, typer.Option(min=1, max=256, help="coordinators that share the spans")] = 1,
    output: Format = Output.TABLE,
) -> None:
    """What deciding costs a coordinator: dispatch, events, idle ticks, a lost agent, replay, memory."""
    options = ControlOptions(rounds=rounds, shards=shards)
    if spans:
        options = ControlOptions(tuple(spans), rounds, shards)
    _show(bench_control(options, note), output)


@app.command("generation")
def generation(
    *,
    writers: Annotated[list[int] | None, typer.Option(min=1, help="numbers of writers; 1, 10 and 100 if none")] = None,
    switches: Annotated[int, typer.Option(min=2, help="switches with each number of writers")] = 10,
    rate: Annotated[int, typer.Option(min=10, help="changes per second in all")] = 200,
    processes: Annotated[int, typer.Option(min=0, help="in which the writers are; 0: in this one")] = 0,
    compared: Annotated[bool, typer.Option(help="also compare with a plain topic that grows")] = True,
    output: Format = Output.TABLE,
) -> None:
    """What a switch of a change log costs: its time, who waits for it and how long; and what routing a key costs."""
    options = GenerationOptions(tuple(writers or (1, 10, 100)), switches, rate, processes=processes, compared=compared)
    _show(bench_generation(options, note), output)


@app.command("migration")
def migration(  # noqa: PLR0917 - options of a command line
    rows: Annotated[int, typer.Option(min=1_000, help="rows of each table")] = 5_000_000,
    writes: Annotated[int, typer.Option(min=4, help="statements per second on the table that is changed")] = 1_000,
    rounds: Annotated[int, typer.Option(min=1, help="tables changed by each strategy, in turn")] = 1,
    database: Annotated[list[str] | None, typer.Option(help=f"{', '.join(DATABASES)}; both if none")] = None,
    backlog: Annotated[
        float, typer.Option(min=1, help="seconds that the agent is stopped before it catches up")
    ] = 20.0,
    output: Format = Output.TABLE,
) -> None:
    """What a schema change under load costs: copying, catching up, the cut-over's stall; beside pt-osc at MariaDB."""
    options = MigrationBenchOptions(rows, writes, rounds, _databases(database), backlog)
    _show(bench_migration(options, note), output)


@app.command("snapshot")
def snapshot(
    rows: Annotated[int, typer.Option(min=1_000, help="rows of each table")] = 5_000_000,
    writes: Annotated[int, typer.Option(min=4, help="statements per second on the table that is copied")] = 1_000,
    rounds: Annotated[int, typer.Option(min=1, help="tables copied by each side, in turn")] = 3,
    database: Annotated[list[str] | None, typer.Option(help=f"{', '.join(DATABASES)}; both if none")] = None,
    output: Format = Output.TABLE,
) -> None:
    """Rows per second of a feed's snapshot under load, beside Debezium's, and a piped COPY or mariadb-dump."""
    options = SnapshotOptions(rows, writes, rounds, _databases(database))
    _show(bench_snapshot(options, note), output)


@app.command("kafka-sink")
def kafka_sink(
    changes: Annotated[int, typer.Option(min=1_000, help="changes in the prepared topic")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved runs of each side")] = 3,
    output: Format = Output.TABLE,
) -> None:
    """Records per second from topic to topic, exactly once, beside Spark's own Kafka sink in the same run."""
    _show(bench_kafka_sink(KafkaSinkOptions(changes=changes, rounds=rounds), note), output)


@app.command("lake")
def lake(  # noqa: PLR0917 - options of a command line
    changes: Annotated[int, typer.Option(min=1_000, help="changes in each prepared topic")] = 1_000_000,
    keys: Annotated[int, typer.Option(min=1, help="rows that updates and deletes are of")] = 200_000,
    batch: Annotated[int, typer.Option(min=100, help="changes of each commit")] = 50_000,
    commits: Annotated[int, typer.Option(min=10, help="commits in a row whose time is compared")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved runs of each side")] = 1,
    kind: Annotated[list[str] | None, typer.Option(help=f"{', '.join(KIND_NAMES)}; both if none")] = None,
    output: Format = Output.TABLE,
) -> None:
    """Changes per second into Delta and Iceberg, beside Spark's foreachBatch with MERGE INTO and with append."""
    for name in kind or ():
        if name not in KIND_NAMES:
            raise typer.BadParameter(f"{name!r}: choose from {', '.join(KIND_NAMES)}", param_hint="--kind")
    check_installed()
    from headgate_lab.benchmarks.lake import bench_lake  # noqa: PLC0415 - needs packages that are optional

    options = LakeOptions(changes, keys, batch, commits, rounds, tuple(kind or KIND_NAMES))
    _show(bench_lake(options, note), output)


def _databases(named: list[str] | None) -> tuple[str, ...]:
    for name in named or ():
        if name not in DATABASES:
            raise typer.BadParameter(f"{name!r}: choose from {', '.join(DATABASES)}", param_hint="--database")
    return tuple(named or DATABASES)


def _show(report: BenchReport, output: Output) -> None:
    if output is not Output.TABLE:
        sys.stdout.write(report.to_json() + "\n")
        return
    rows = [
        {"figure": name, "value": f.value, "unit": f.unit, "goal": f.goal, "n": f.n, "spread": f.spread}
        for name, f in report.figures.items()
    ]
    show_rows(("figure", "value", "unit", "goal", "n", "spread"), rows, output)
