"""``headgate migration``: submit schema changes, follow them and decide about them (docs/migrations.md)."""

import os
import time
from typing import Annotated, Any, Final
from uuid import uuid4

import msgspec
import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import ChangeOptions, Destruction, Permit, agreed, permitted
from headgate.cli.connection_names import complete_databases
from headgate.cli.lookup import find_migration
from headgate.cli.migration_target import TargetOptions, TurnOptions
from headgate.cli.migration_way_back import way_back_of
from headgate.cli.names import complete_feed_limits, complete_migrations, complete_migrations_or_all
from headgate.cli.options import ClusterOptions, CommandGroup, Format, Watch, connected
from headgate.cli.output import Output, again, note, show_object, show_rows
from headgate.cli.requests import OutcomeOptions, ask_owner, requester, show_settled
from headgate.cli.snapshots import deliveries, read_snapshot
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.log import Delivery, Log, Partition
from headgate.migration.core.requests import ALL
from headgate.migration.core.spec import (
    CHUNK_ROWS_DEFAULT,
    MigrationSpec,
    MigrationSpecError,
    parse_request,
    parse_spec,
    written,
)
from headgate.records.migration import (
    MigrationApprovalKey,
    MigrationKey,
    MigrationOutcomeKey,
    MigrationOwnerKey,
    MigrationRecorded,
    MigrationRequested,
    MigrationRequestKey,
    MigrationRequestKind,
    MigrationStrategy,
)
from headgate.records.migration_standing import percent_of_stage, seconds_in_stages, waits_for
from headgate.runtime.requests import Request

app = CommandGroup(help="Change schemas under load.", no_args_is_help=True)

TOPIC: Final = Partition("migration", 0)

_VERBS: Final = {
    MigrationRequestKind.APPROVE: "approve",
    MigrationRequestKind.CANCEL: "cancel",
    MigrationRequestKind.RETRY: "retry",
    MigrationRequestKind.LAUNCH: "launch",
    MigrationRequestKind.COMPLETE: "complete",
    MigrationRequestKind.FORCE_CUTOVER: "force the cut-over of",
    MigrationRequestKind.CLEANUP: "drop the old tables of",
    MigrationRequestKind.THROTTLE: "throttle",
    MigrationRequestKind.SUBMIT: "submit",
    MigrationRequestKind.REVERT: "revert by",
}
"""What each operation does, for a prompt or a dry run: "cancel migration 7"."""

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="see `headgate migration list`; all for every migration",
        autocompletion=complete_migrations_or_all,
    ),
]
OneId = Annotated[
    str, typer.Argument(metavar="ID", help="see `headgate migration list`", autocompletion=complete_migrations)
]
AllowLossy = Annotated[
    list[str] | None,
    typer.Option("--allow-lossy", metavar="COLUMN", help="a column whose values may be lost; may be repeated"),
]
Statement = Annotated[str, typer.Argument(metavar="STATEMENT", help="one ALTER TABLE, CREATE TABLE or DROP TABLE")]


@app.command()
def submit(
    statement: Statement,
    *,
    target: TargetOptions,
    migration: Annotated[
        str | None, typer.Option("--id", help="id of the migration; submitting it again does not create another")
    ] = None,
    context: Annotated[str, typer.Option("--context", help="a name that migrations of one release share")] = "",
    turn: TurnOptions,
    in_order_completion: Annotated[
        bool, typer.Option("--in-order-completion", help="cut over in the order of submission within --context")
    ] = False,
    singleton: Annotated[
        bool, typer.Option("--singleton", help="refuse it while another migration of the database is pending")
    ] = False,
    singleton_context: Annotated[
        bool, typer.Option("--singleton-context", help="refuse it while a migration of another context is pending")
    ] = False,
    allow_lossy: AllowLossy = None,
    retain_artifacts: Annotated[
        float, typer.Option("--retain-artifacts", help="seconds to keep the old table")
    ] = 86_400.0,
    cutover_threshold: Annotated[
        float, typer.Option("--cutover-threshold", help="seconds that writers may wait")
    ] = 3.0,
    chunk_rows: Annotated[
        int, typer.Option("--chunk-rows", help="rows copied by one statement (pt-osc, gh-ost)")
    ] = CHUNK_ROWS_DEFAULT,
    max_threads_running: Annotated[
        int | None,
        typer.Option("--max-threads-running", help="pause the copy while more sessions are active at the database"),
    ] = None,
    max_lag: Annotated[
        float | None, typer.Option("--max-lag", help="pause the copy while a replica is more seconds behind")
    ] = None,
    replica: Annotated[
        list[str] | None,
        typer.Option(
            "--replica",
            metavar="NAME",
            help="named connection of a replica whose lag counts; may be repeated (MariaDB)",
            autocompletion=complete_databases,
        ),
    ] = None,
    max_feed_lag: Annotated[
        list[str] | None,
        typer.Option(
            "--max-feed-lag",
            metavar="FEED=SECONDS",
            help="pause the copy while the feed is further behind; may be repeated",
            autocompletion=complete_feed_limits,
        ),
    ] = None,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Submit a schema change. It is examined at its database, and queued or refused.

    --dry-run examines the statement and the table in a read-only session and submits nothing. Types and rows are
    checked at the submission. Changes that cannot be reverted need --yes. Strategy online finds out at the submission
    whether the change is one of them. The other strategies, and --prefer-instant, ask before it on a terminal.

    Example: headgate migration submit 'ALTER TABLE items ADD note text' --database shop --topic shop.public.items
    """
    strategy, prefers_instant = MigrationStrategy(target.strategy), target.prefer_instant
    is_online = strategy is MigrationStrategy.ONLINE
    spec = _checked(
        MigrationSpec(
            statement=statement,
            database=target.database,
            strategy=strategy,
            topic=target.topic,
            registry=target.registry,
            declarative=target.declarative,
            prefer_instant=prefers_instant,
            tool_options=tuple(target.tool_options or ()),
            context=context,
            allow_concurrent=turn.allow_concurrent,
            postpone_launch=turn.postpone_launch,
            postpone_completion=turn.postpone_completion,
            keep_way_back=turn.keep_revertible or turn.keep_way_back,
            force_cutover_after_seconds=turn.force_cutover_after,
            in_order_completion=in_order_completion,
            singleton=singleton,
            singleton_context=singleton_context,
            allow_lossy=tuple(allow_lossy or ()),
            retain_artifacts_seconds=retain_artifacts,
            cutover_threshold_seconds=cutover_threshold,
            chunk_rows=chunk_rows,
            threads_running_max=max_threads_running,
            lag_seconds_max=max_lag,
            replicas=tuple(replica or ()),
            feed_lags_max=_feed_lags(max_feed_lag or []),
            must_be_revertible=is_online and not change.yes,
        )
    )
    how = f"by strategy {spec.strategy.value}" if not is_online else "at once where the server can (--prefer-instant)"
    permit = agreed(change.only_if(not is_online or prefers_instant), f"change a table {how}")
    if permit is None:
        from headgate.cli.migration_examine import examine  # noqa: PLC0415 - it imports every strategy

        examine(spec, outcome.output)
        return
    name = migration or uuid4().hex
    with connected(cluster) as (_, log):
        _ask(log, MigrationRequestKind.SUBMIT, name, permit, outcome, spec=written(spec))


def _feed_lags(given: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in given:
        feed, equals, seconds = text.rpartition("=")
        try:
            found[feed] = float(seconds)
        except ValueError:
            equals = ""
        if not feed or not equals:
            raise CommandError(ExitCode.USAGE, f"--max-feed-lag {text!r}: write FEED=SECONDS")
    return found


def _checked(spec: MigrationSpec) -> MigrationSpec:
    try:
        return parse_request(written(spec))
    except MigrationSpecError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    except UnicodeEncodeError as error:
        raise CommandError(ExitCode.USAGE, f"{error.object!r} is not valid UTF-8: nothing can record it") from error


@app.command("list")
def list_migrations(*, watch: Watch = None, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List migrations in the order of their submission.

    Example: headgate migration list
    """
    columns = ("id", "state", "stage", "progress", "eta", "table", "strategy", "retries", "waits_for", "message")
    with connected(cluster) as (_, log):
        again(lambda: show_rows(columns, [_row(name, record) for name, record in _all(log)], output), watch)


@app.command()
def show(migration: Id, *, watch: Watch = None, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """Show a migration. With --watch, show its progress until it has ended.

    Example: headgate migration show m1 --watch 1
    """
    with connected(cluster) as (_, log):
        if watch is None or output is not Output.TABLE:
            again(lambda: show_object(_shown(log, migration), output), watch)
        else:
            _follow(log, migration, watch)


def _shown(log: Log, migration: str) -> dict[str, Any]:
    record = _one(log, migration)
    found = way_back_of(log, record)
    return _row(migration, record) | ({"way_back": found} if found else {})


def _follow(log: Log, migration: str, seconds: float) -> None:
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - only --watch needs a bar

    from headgate.cli.rendering import console  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
    out = console(stderr=True)
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task(migration, total=100.0, said="")
        while True:
            record = _one(log, migration)
            percent = percent_of_stage(record)
            text = f"{migration}: {record.stage or record.state.value}"
            total = None if percent is None else 100.0
            bar.update(task, description=text, total=total, completed=percent or 0, said=_said(migration, record))
            if record.ended_ms:
                break
            time.sleep(seconds)
    note(f"{migration}: {record.state.value}{': ' + record.message if record.message else ''}")


def _said(migration: str, record: MigrationRecorded) -> str:
    """The text behind the bar: percent of the stage, rows, time left, what it waits for."""
    rows = f"{record.rows_copied} of about {record.table_rows} rows" if record.table_rows else ""
    waits = waits_for(migration, record, wall_ms())
    return ", ".join(filter(None, (_percent(record), rows, _eta(record), waits and f"waits for {waits}")))


@app.command()
def logs(migration: Id, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """Show the records of a migration, and the last lines of its program's output.

    Compaction leaves the newest record.

    Example: headgate migration logs m1
    """
    columns = ("offset", "state", "stage", "rows_copied", "message")
    with connected(cluster) as (_, log):
        rows = [
            {"offset": read.offset, **_row(migration, read.value)}
            for read in _history(log)
            if read.key == MigrationKey(migration) and isinstance(read.value, MigrationRecorded)
        ]
        if not rows:
            _one(log, migration)  # raises for a name that does not exist
        show_rows(columns, rows, output)
    if output is Output.TABLE:
        from headgate.migration.strategies.tools.tool import said_by_tool  # noqa: PLC0415 - it imports every strategy

        for line in said_by_tool(str(rows[-1]["note"])):
            note(line)


def _change(
    cluster: ClusterOptions,
    kind: MigrationRequestKind,
    migration: str,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    *,
    ratio: float | None = None,
    expires: float | None = None,
) -> None:
    """Ask for an operation on a migration that exists, if the user agrees."""
    with connected(cluster) as (_, log):
        what, facts = _described(kind, migration), {"id": migration}
        permit = permitted(change, what, outcome.output, facts, check=lambda: _known(log, migration))
        if permit is not None:
            _ask(log, kind, migration, permit, outcome, ratio=ratio, expires=expires)


def _described(kind: MigrationRequestKind, migration: str) -> str:
    return f"{_VERBS[kind]} " + ("all migrations" if migration == ALL else f"migration {migration}")


def _known(log: Log, migration: str) -> None:
    if migration != ALL:
        _one(log, migration)


@app.command()
def cancel(migration: Id, *, change: ChangeOptions, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    """Cancel a pending migration. Done when it writes nothing any more.

    Example: headgate migration cancel m1
    """
    _change(cluster, MigrationRequestKind.CANCEL, migration, change, outcome)


@app.command()
def retry(migration: Id, *, change: ChangeOptions, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    """Queue a failed or cancelled migration again.

    Example: headgate migration retry m1
    """
    _change(cluster, MigrationRequestKind.RETRY, migration, change, outcome)


@app.command()
def launch(migration: Id, *, change: ChangeOptions, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    """Start a migration that was submitted with --postpone-launch.

    Example: headgate migration launch m1
    """
    _change(cluster, MigrationRequestKind.LAUNCH, migration, change, outcome)


@app.command()
def complete(migration: Id, *, change: ChangeOptions, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    """Cut over a migration that was submitted with --postpone-completion.

    Example: headgate migration complete m1
    """
    _change(cluster, MigrationRequestKind.COMPLETE, migration, change, outcome)


@app.command()
def force_cutover(migration: Id, *, change: Destruction, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    """Cut over now, and end the sessions that hold the table.

    Example: headgate migration force-cutover m1 --dry-run
    """
    _change(cluster, MigrationRequestKind.FORCE_CUTOVER, migration, change, outcome)


@app.command()
def cleanup(migration: Id, *, change: Destruction, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    """Drop the tables that an ended migration has left. It cannot be reverted then.

    Example: headgate migration cleanup m1 --dry-run
    """
    _change(cluster, MigrationRequestKind.CLEANUP, migration, change, outcome)


@app.command()
def approve(migration: OneId, *, change: Destruction, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    """Approve a migration that another user has submitted.

    Connections with `approval: required` queue a migration only then. Read it with `headgate migration show` first.

    Example: headgate migration approve m1
    """
    _change(cluster, MigrationRequestKind.APPROVE, migration, change, outcome)


@app.command()
def throttle(
    migration: Id,
    *,
    ratio: Annotated[float, typer.Option("--ratio", help="0 is full speed, 1 stops the copy")] = 1.0,
    expires: Annotated[float | None, typer.Option("--expires", help="seconds until the ratio no longer counts")] = None,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Slow down a migration's copy. --ratio 0 ends it.

    Example: headgate migration throttle ID --ratio 0.5 --expires 600
    """
    _change(cluster, MigrationRequestKind.THROTTLE, migration, change, outcome, ratio=ratio, expires=expires)


@app.command()
def revert(
    migration: OneId,
    *,
    new_id: Annotated[str | None, typer.Option("--id", help="id of the revert, which is a separate migration")] = None,
    turn: TurnOptions,
    retain_artifacts: Annotated[
        float | None,
        typer.Option(
            "--retain-artifacts", help="seconds to keep the table as it was; default as in the reverted migration"
        ),
    ] = None,
    cutover_threshold: Annotated[
        float | None,
        typer.Option("--cutover-threshold", help="seconds that writers may wait; default as in the reverted migration"),
    ] = None,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Revert the last completed migration of a table, as a migration of its own. Nothing written since is lost.

    Example: headgate migration revert m1 --id m2
    """
    with connected(cluster) as (_, log):
        before = parse_spec(_one(log, migration).spec)
        spec = _checked(
            MigrationSpec(
                statement=f"revert {migration}",
                database=before.database,
                strategy=before.strategy,
                topic=before.topic,
                registry=before.registry,
                reverts=migration,
                allow_concurrent=turn.allow_concurrent,
                postpone_launch=turn.postpone_launch,
                postpone_completion=turn.postpone_completion,
                keep_way_back=turn.keep_revertible or turn.keep_way_back,
                force_cutover_after_seconds=turn.force_cutover_after,
                retain_artifacts_seconds=_or(retain_artifacts, before.retain_artifacts_seconds),
                cutover_threshold_seconds=_or(cutover_threshold, before.cutover_threshold_seconds),
            )
        )
        permit = permitted(change, f"revert migration {migration}", outcome.output, {"id": migration})
        if permit is not None:
            name = new_id or uuid4().hex
            _ask(log, MigrationRequestKind.REVERT, name, permit, outcome, spec=written(spec))


def _or(given: float | None, theirs: float) -> float:
    return theirs if given is None else given


# --- the log --------------------------------------------------------------------------------------------------


def _ask(
    log: Log,
    kind: MigrationRequestKind,
    migration: str,
    permit: Permit,
    outcome: OutcomeOptions,
    *,
    spec: str | None = None,
    ratio: float | None = None,
    expires: float | None = None,
) -> None:
    """Write the request, wait until it is done, show its outcome. Raises RequestError, LogError."""
    request = uuid4().hex
    record = MigrationRequested(
        kind=kind,
        migration=migration,
        spec=spec,
        throttle_ratio=ratio,
        expires_seconds=expires,
        requested_by=f"{requester()} (pid {os.getpid()})",
        requested_ms=wall_ms(),
    )
    key = (MigrationApprovalKey if kind is MigrationRequestKind.APPROVE else MigrationRequestKey)(request)
    asked = Request(
        what=_described(kind, migration),
        partition=TOPIC,
        asked_on=Partition(key.topic, TOPIC.number),
        key=key,
        record=record,
        outcome=MigrationOutcomeKey(request),
        owner=MigrationOwnerKey(TOPIC.number),
        service="migration",
        if_unfinished="it continues: see `headgate migration show`, or give a longer --timeout",
    )
    show_settled(migration, {"id": migration}, ask_owner(log, asked, outcome.timeout, permit), outcome.output)


def _history(log: Log) -> list[Delivery]:
    return deliveries(log, [TOPIC])


def _all(log: Log) -> list[tuple[str, MigrationRecorded]]:
    found = read_snapshot(log, [TOPIC]).each(MigrationKey, MigrationRecorded)
    return sorted(((key.migration, record) for key, record in found), key=lambda item: (item[1].sequence, item[0]))


def _one(log: Log, migration: str) -> MigrationRecorded:
    return find_migration(read_snapshot(log, [TOPIC]), migration)


def _percent(record: MigrationRecorded) -> str:
    percent = percent_of_stage(record)
    return "" if percent is None else f"{percent} %"


def _eta(record: MigrationRecorded) -> str:
    return f"{record.eta_seconds} s left" if record.eta_seconds > 0 else ""


def _row(name: str, record: MigrationRecorded) -> dict[str, Any]:
    spec, now_ms = parse_spec(record.spec), wall_ms()
    return {
        "id": name,
        **msgspec.to_builtins(record),
        "statement": spec.statement,
        "found": spec.found,
        "strategy": spec.strategy.value,
        "database": spec.database,
        "context": spec.context,
        "progress": _percent(record),
        "eta": _eta(record),
        "waits_for": waits_for(name, record, now_ms),
        "stages": seconds_in_stages(record, now_ms),
        "artifacts": [artifact.name for artifact in record.artifacts],
    }
