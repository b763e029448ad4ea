"""Options of ``headgate migration submit`` and ``plan`` that say where a schema change is done, and how."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.options import OptionGroup
from headgate.migration.core.spec import Registry

StrategyName = Literal["online", "pt-osc", "gh-ost", "direct"]
"""``OFFERED``, as a type. Records have others, of earlier versions."""


class TargetOptions(OptionGroup, frozen=True):
    """Where a schema change is done, and how."""

    database: Annotated[str, typer.Option("--database", help="mysql://user@host:port/database or postgresql://…")] = ""
    connection: Annotated[
        str | None, typer.Option("--connection", help="a named connection of the migration service, for --database")
    ] = None
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="a file in HEADGATE_SECRETS_DIR of the migration service")
    ] = None
    strategy: Annotated[
        StrategyName,
        typer.Option(
            "--strategy",
            help="online copies through Spark, pt-osc and gh-ost by these programs; direct does not copy",
        ),
    ] = "online"
    topic: Annotated[
        str | None, typer.Option("--topic", help="which has the table's changes (of Debezium), for strategy online")
    ] = None
    registry: Annotated[str | None, typer.Option("--registry", help="the topic is in Avro: address of its schemas")] = (
        None
    )
    registry_user: Annotated[str | None, typer.Option("--registry-user")] = None
    registry_password_file: Annotated[
        Path | None, typer.Option("--registry-password-file", help="a file in HEADGATE_SECRETS_DIR of owner and agents")
    ] = None
    registry_ca_file: Annotated[
        Path | None, typer.Option("--registry-ca-file", help="who has signed its certificate, on the same machines")
    ] = None
    registry_plain_http: Annotated[
        bool, typer.Option("--registry-allow-plain-http", help="user and password may go over http")
    ] = False

    declarative: Annotated[
        bool, typer.Option("--declarative", help="STATEMENT is the wanted CREATE TABLE; the ALTER is found")
    ] = False
    prefer_instant: Annotated[
        bool, typer.Option("--prefer-instant", help="copy nothing, where the server changes its catalogue alone")
    ] = False
    tool_options: Annotated[
        list[str] | None,
        typer.Option("--tool-option", help="--name=value for pt-osc or gh-ost, as it is; may be repeated"),
    ] = None

    def address(self) -> str:
        """The database's address; empty if a connection is named instead. Raises CommandError."""
        if self.database and self.connection is not None:
            raise CommandError(ExitCode.USAGE, "--database and --connection both name a database: give one of them")
        return self.database

    def password_path(self) -> str | None:
        """The password's file: a name in the owner's folder for secrets, or a whole path in it."""
        return None if self.password_file is None else str(self.password_file)

    def schema_registry(self) -> Registry | None:
        """Where the topic's schemas are; None if it needs none. Raises CommandError."""
        if self.registry is None:
            if self.registry_user or self.registry_password_file or self.registry_ca_file or self.registry_plain_http:
                raise CommandError(ExitCode.USAGE, "--registry-… without --registry: give the registry's address")
            return None
        return Registry(
            self.registry,
            self.registry_user,
            None if self.registry_password_file is None else str(self.registry_password_file),
            _whole(self.registry_ca_file),
            self.registry_plain_http,
        )


def _whole(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
