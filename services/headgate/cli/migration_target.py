"""Groups of options of ``headgate migration submit``: where a change is done and how, and when it runs."""

from typing import Annotated, Literal

import typer

from headgate.cli.connection_names import complete_databases, complete_registries
from headgate.cli.names import complete_topics_of_feeds
from headgate.cli.options import OptionGroup
from headgate.cli.output import note

StrategyName = Literal["online", "pt-osc", "gh-ost", "direct"]
"""``OFFERED``, as a type. Records have others, of earlier versions."""


def _renamed(given: bool) -> bool:
    """Warn about an option's former name, which still works."""
    if given:
        note("warning: --keep-way-back is called --keep-revertible now. The former name will be removed")
    return given


class TargetOptions(OptionGroup, frozen=True):
    """Where a schema change is done, and how."""

    database: Annotated[
        str,
        typer.Option(
            "--database",
            help="a named connection of the migration service (HEADGATE_CONNECTIONS)",
            autocompletion=complete_databases,
        ),
    ]
    strategy: Annotated[
        StrategyName,
        typer.Option(
            "--strategy",
            help="online copies through Spark, pt-osc and gh-ost by these programs; direct does not copy",
        ),
    ] = "online"
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            help="Debezium's topic with the table's changes, for strategy online",
            autocompletion=complete_topics_of_feeds,
        ),
    ] = None
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            help="the topic is in Avro: a named schema registry of the service",
            autocompletion=complete_registries,
        ),
    ] = None
    declarative: Annotated[
        bool, typer.Option("--declarative", help="STATEMENT is the desired CREATE TABLE; Headgate derives the ALTER")
    ] = False
    prefer_instant: Annotated[
        bool, typer.Option("--prefer-instant", help="do not copy if the server only has to change its catalogue")
    ] = False
    tool_options: Annotated[
        list[str] | None,
        typer.Option("--tool-option", metavar="--NAME=VALUE", help="to pass to pt-osc or gh-ost; may be repeated"),
    ] = None


class TurnOptions(OptionGroup, frozen=True):
    """When a migration runs and is cut over, and what is kept: of a submission and of a revert."""

    allow_concurrent: Annotated[
        bool, typer.Option("--allow-concurrent", help="let it run beside other migrations of the database")
    ] = False
    postpone_launch: Annotated[
        bool, typer.Option("--postpone-launch", help="start only after `headgate migration launch`")
    ] = False
    postpone_completion: Annotated[
        bool, typer.Option("--postpone-completion", help="cut over only after `headgate migration complete`")
    ] = False
    keep_revertible: Annotated[
        bool,
        typer.Option(
            "--keep-revertible", help="keep the old table up to date after the cut-over, so that a revert is immediate"
        ),
    ] = False
    keep_way_back: Annotated[
        bool,
        typer.Option(
            "--keep-way-back", hidden=True, callback=_renamed, help="deprecated: the former name of --keep-revertible"
        ),
    ] = False
    force_cutover_after: Annotated[
        float | None,
        typer.Option(
            "--force-cutover-after", help="seconds to wait for the cut-over, before sessions in its way are ended"
        ),
    ] = None
