"""``headgate serve``: run a service in the foreground, until SIGTERM or Ctrl-C."""

from typing import Annotated, Any

import typer

from headgate.app.services import (
    run_agent,
    run_coordinator,
    run_generation,
    run_ingest,
    run_migration,
    run_node,
    run_views,
)
from headgate.cli.jars import fetch_before_start
from headgate.cli.names import complete_broker_topics, complete_change_logs
from headgate.cli.options import ClusterOptions, CommandGroup, OptionGroup, cluster_flags
from headgate.config.settings import with_variable

app = CommandGroup(help="Run a service.", no_args_is_help=True)

Lease = Annotated[
    float | None,
    typer.Option(
        "--lease-seconds", help=with_variable("seconds without a heartbeat until it counts as lost", "lease_seconds")
    ),
]
CreateTopics = Annotated[
    bool, typer.Option("--create-topics", help="create the control topics that are missing, as `topic create` does")
]
Shard = Annotated[
    list[int] | None, typer.Option("--shard", metavar="SHARD", help="serve only this shard; may be repeated")
]
AgentName = Annotated[str | None, typer.Option("--name", help=with_variable("the agent's name", "agent", "name"))]


class ProcessOptions(OptionGroup, frozen=True):
    """Where a service is looked at, and how it writes its log."""

    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port",
            help=with_variable("port for health checks and metrics; 0 chooses a free one", "http", "port"),
        ),
    ] = None
    http_bind: Annotated[
        str | None, typer.Option("--http-bind", help=with_variable("address to listen on", "http", "bind"))
    ] = None
    log_format: Annotated[
        str | None, typer.Option("--log-format", help=with_variable("auto, console or json", "log", "format"))
    ] = None
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            help=with_variable("lowest level to write: debug, info, warning or error", "log", "level"),
        ),
    ] = None


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
    """Run a coordinator: assign tables to agents.

    Example: headgate serve coordinator --bootstrap broker:9092
    """
    run_coordinator(_flags(process, cluster, lease_seconds=lease_seconds), shard, create=create)


@app.command()
def agent(
    *, name: AgentName = None, lease_seconds: Lease = None, process: ProcessOptions, cluster: ClusterOptions
) -> None:
    """Run an agent: replicate tables on Spark.

    Example: headgate serve agent --bootstrap broker:9092 --name agent-1
    """
    flags = _flags(process, cluster, lease_seconds=lease_seconds, name=name)
    fetch_before_start(flags)
    run_agent(flags)


@app.command()
def generation(
    *,
    shard: Shard = None,
    create: CreateTopics = False,
    lease_seconds: Lease = None,
    process: ProcessOptions,
    cluster: ClusterOptions,
) -> None:
    """Run the generation service: re-partition change logs and keep each key's order.

    Example: headgate serve generation --bootstrap broker:9092
    """
    run_generation(_flags(process, cluster, lease_seconds=lease_seconds), shard, create=create)


@app.command()
def ingest(
    log_name: Annotated[
        str, typer.Argument(metavar="LOG", help="name of the change log", autocompletion=complete_change_logs)
    ],
    *,
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="keyed topic to copy; may be repeated",
            autocompletion=complete_broker_topics,
        ),
    ],
    name: Annotated[
        str,
        typer.Option(
            "--name", help="processes with the same name share the topics, and continue where one has stopped"
        ),
    ] = "ingest",
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="TOPIC/PARTITION/OFFSET", help="leave out this record; may be repeated"),
    ] = None,
    process: ProcessOptions,
    cluster: ClusterOptions,
) -> None:
    """Copy keyed topics into a change log, each record once and per key in order.

    Example: headgate serve ingest orders --topic shop.public.orders
    """
    run_ingest(_flags(process, cluster), log_name, topics, name, skip or ())


@app.command()
def migration(
    *, create: CreateTopics = False, lease_seconds: Lease = None, process: ProcessOptions, cluster: ClusterOptions
) -> None:
    """Run the migration service: schedule and execute online schema changes.

    Example: headgate serve migration --bootstrap broker:9092
    """
    run_migration(_flags(process, cluster, lease_seconds=lease_seconds), create=create)


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
    """Run a coordinator and an agent in one process. If one ends, so does the other.

    Example: headgate serve node --bootstrap broker:9092 --create-topics
    """
    flags = _flags(process, cluster, lease_seconds=lease_seconds, name=name)
    fetch_before_start(flags)
    run_node(flags, shard, create=create)


@app.command()
def views(*, process: ProcessOptions, cluster: ClusterOptions) -> None:
    """Serve a read-only HTTP view of the control topics.

    It answers on HEADGATE_VIEWS__BIND and HEADGATE_VIEWS__PORT (127.0.0.1:8421 by default). --http-port is the port for
    its health checks and metrics, as for every service.

    Example: headgate serve views --bootstrap broker:9092
    """
    run_views(_flags(process, cluster))
