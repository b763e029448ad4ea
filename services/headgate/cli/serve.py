"""``headgate serve``: the services themselves, in the foreground, until SIGTERM or Ctrl-C.

Each service is put together by a module of its own, which is imported for that service alone.
"""

import os
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.options import ClusterOptions, CommandGroup, OptionGroup, cluster_flags
from headgate.cli.running import Part, Surroundings, run_parts, surrounded
from headgate.config.settings import Settings
from headgate.runtime.service import ServiceSettings

__all__ = ["app"]

app = CommandGroup(help="Run a service in the foreground, until SIGTERM or Ctrl-C.", no_args_is_help=True)

Lease = Annotated[float | None, typer.Option("--lease-seconds", help="[HEADGATE_LEASE_SECONDS]")]
CreateTopics = Annotated[
    bool, typer.Option("--create-topics", help="create the control topics that are missing, as `topic create` does")
]
Shard = Annotated[list[int] | None, typer.Option("--shard", help="serve only this shard; may be repeated")]
AgentName = Annotated[str | None, typer.Option("--name", help="the agent's name [HEADGATE_AGENT__NAME]")]


class ProcessOptions(OptionGroup, frozen=True):
    """Where a service is looked at, and how it writes its log."""

    http_port: Annotated[int | None, typer.Option("--http-port", help="0 takes any free one [HEADGATE_HTTP__PORT]")] = (
        None
    )
    http_bind: Annotated[str | None, typer.Option("--http-bind", help="address to listen on [HEADGATE_HTTP__BIND]")] = (
        None
    )
    log_format: Annotated[
        str | None, typer.Option("--log-format", help="auto, console, json [HEADGATE_LOG__FORMAT]")
    ] = None
    log_level: Annotated[str | None, typer.Option("--log-level", help="[HEADGATE_LOG__LEVEL]")] = None


def _flags(
    process: ProcessOptions, cluster: ClusterOptions, *, lease_seconds: float | None = None, name: str | None = None
) -> dict[str, Any]:
    """The options as nested settings. Raises SettingsError."""
    return {
        **cluster_flags(cluster),
        "lease_seconds": lease_seconds,
        "http": {"port": process.http_port, "bind": process.http_bind},
        "log": {"format": process.log_format, "level": process.log_level},
        "agent": {"name": name},
    }


@app.command()
def coordinator(
    *,
    shard: Shard = None,
    create: CreateTopics = False,
    lease_seconds: Lease = None,
    process: ProcessOptions,
    cluster: ClusterOptions,
) -> None:
    """Campaign for shards and own them: decide which agent runs which table."""
    flags = _flags(process, cluster, lease_seconds=lease_seconds)
    with surrounded("coordinator", flags, create=create) as around:
        run_parts([_coordinator_part(around, shard)], _stop_seconds(around.settings))


def _scratch(around: Surroundings) -> tempfile.TemporaryDirectory[str]:
    """A folder for Spark's temporary files; what a killed JVM still writes there must not spoil our own end."""
    return _temporary(around.settings.spark.scratch, "HEADGATE_SPARK__SCRATCH")


def _temporary(folder: str, setting: str) -> tempfile.TemporaryDirectory[str]:
    """A new folder in ``folder``, or where the system has such. Raises CommandError."""
    try:
        return tempfile.TemporaryDirectory(prefix="headgate-", dir=folder or None, ignore_cleanup_errors=True)
    except OSError as error:
        where = folder or "the system's folder for temporary files"
        raise CommandError(
            ExitCode.SETTING,
            f"{setting}: user {os.geteuid()} cannot write to {where}: {error.strerror}. Name a folder that this user "
            "may write to; in a container, a volume of its own or a tmpfs (docs/containers.md)",
        ) from error


@app.command()
def agent(
    *, name: AgentName = None, lease_seconds: Lease = None, process: ProcessOptions, cluster: ClusterOptions
) -> None:
    """Run tables on Spark: read, reduce, apply, report."""
    flags = _flags(process, cluster, lease_seconds=lease_seconds, name=name)
    with surrounded("agent", flags, create=False) as around, _scratch(around) as scratch:
        run_parts([_agent_part(around, scratch)], _stop_seconds(around.settings))


@app.command()
def generation(
    *,
    shard: Shard = None,
    create: CreateTopics = False,
    lease_seconds: Lease = None,
    process: ProcessOptions,
    cluster: ClusterOptions,
) -> None:
    """Own change logs: switch their generations, so that they are re-partitioned without breaking any key's order."""
    flags = _flags(process, cluster, lease_seconds=lease_seconds)
    with surrounded("generation", flags, create=create) as around:
        part = import_module("headgate.cli.generation_part")
        run_parts([part.generation_part(around, _service_settings(around, shard))], _stop_seconds(around.settings))


@app.command()
def ingest(
    log_name: Annotated[str, typer.Argument(metavar="LOG", help="name of the change log")],
    *,
    topics: Annotated[list[str], typer.Option("--topic", help="keyed topic to copy; may be repeated")],
    name: Annotated[
        str, typer.Option("--name", help="processes of one name share the topics, and go on where one has stopped")
    ] = "ingest",
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="TOPIC/PARTITION/OFFSET", help="leave out this record; may be repeated"),
    ] = None,
    process: ProcessOptions,
    cluster: ClusterOptions,
) -> None:
    """Copy keyed topics into a change log, each record once and per key in order."""
    with surrounded("ingest", _flags(process, cluster), create=False) as around:
        part = import_module("headgate.cli.ingest_part")
        run_parts([part.ingest_part(around, log_name, topics, name, skip or ())], _stop_seconds(around.settings))


@app.command()
def migration(
    *, create: CreateTopics = False, lease_seconds: Lease = None, process: ProcessOptions, cluster: ClusterOptions
) -> None:
    """Campaign for the schema changes and own them: schedule them, and do them at their databases."""
    flags = _flags(process, cluster, lease_seconds=lease_seconds)
    reports = import_module("headgate.migration.shell.reports").ToolReports()
    with (
        surrounded("migration", flags, create=create, routes=reports.routes()) as around,
        _scratch(around) as scratch,
    ):
        part = import_module("headgate.cli.migration_part")
        one = _service_settings(around, (0,))  # the topic has one partition: schema changes are few
        run_parts([part.migration_part(around, one, Path(scratch), reports)], _stop_seconds(around.settings))


@app.command()
def node(
    *,
    name: AgentName = None,
    shard: Shard = None,
    create: CreateTopics = False,
    lease_seconds: Lease = None,
    process: ProcessOptions,
    cluster: ClusterOptions,
) -> None:
    """Run a coordinator and an agent in one process; one of them ending ends both."""
    flags = _flags(process, cluster, lease_seconds=lease_seconds, name=name)
    with surrounded("node", flags, create=create) as around, _scratch(around) as scratch:
        parts = [_agent_part(around, scratch), _coordinator_part(around, shard)]
        run_parts(parts, _stop_seconds(around.settings))


@app.command()
def views(*, process: ProcessOptions, cluster: ClusterOptions) -> None:
    """Answer what stands on the control topics, and its history, over HTTP; rebuilt at each start, decides nothing."""
    flags = _flags(process, cluster)
    if find_spec("faust") is None:
        raise CommandError(ExitCode.SETTING, "the views need faust-streaming: pip install 'headgate[views]'")
    _temporary("", "TMPDIR").cleanup()  # Faust keeps its tables in files
    with surrounded("views", flags, create=False) as around:
        # Nobody but this service needs Faust.
        service = import_module("headgate.views.service").ViewsService(
            around.settings, around.log, probes=around.probes, registry=around.registry
        )
        run_parts([Part("views", service.run, service.stop)], _stop_seconds(around.settings))


def _stop_seconds(settings: Settings) -> float:
    """A part keeps the limit by itself; what waits for it must wait a little longer."""
    return settings.shutdown_seconds + 1.0


def _service_settings(around: Surroundings, shards: Sequence[int] | None) -> ServiceSettings:
    """Of an owner of these shards, or of all. Raises CommandError for a shard that the cluster does not have."""
    settings, log = around.settings, around.log
    unknown = sorted(set(shards or ()) - set(range(log.shards)))
    if unknown:
        raise CommandError(
            ExitCode.SETTING, f"--shard {unknown[0]}: cluster {settings.cluster} has shards 0 to {log.shards - 1}"
        )
    return ServiceSettings(
        cluster=settings.cluster,
        shards=tuple(sorted(set(shards))) if shards else tuple(range(log.shards)),
        lease_seconds=settings.lease_seconds,
        holder_lease_seconds=settings.lease_seconds,
        shutdown_seconds=settings.shutdown_seconds,
    )


def _coordinator_part(around: Surroundings, shards: Sequence[int] | None) -> Part:
    part = import_module("headgate.cli.coordinator_part")
    return part.coordinator_part(around, _service_settings(around, shards))  # type: ignore[no-any-return]


def _agent_part(around: Surroundings, scratch: str) -> Part:
    # Spark takes more than a second to import, and only agents need it.
    return import_module("headgate.cli.agent_part").agent_part(around, Path(scratch))  # type: ignore[no-any-return]
