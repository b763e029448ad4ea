"""``headgate source``: databases whose changes Debezium captures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.capture.source import DEFAULT_NAME, Capture, read_source
from headgate.cli.checks import show_findings
from headgate.cli.connection_names import complete_sources
from headgate.cli.options import CommandGroup, Format
from headgate.cli.output import Output
from headgate.cli.waiting import waiting
from headgate.databases.address import FORMS, AddressOptions, Target
from headgate.databases.connections import Use, named

app = CommandGroup(help="Check source databases.", no_args_is_help=True)

_OPTIONS: Final = AddressOptions("SOURCE", "--password-file", "source")

Tables = Annotated[
    list[str] | None,
    typer.Option("--tables", metavar="PATTERN", help="only these tables, such as 'shop.*'. May be repeated"),
]
PublicationName = Annotated[
    str, typer.Option("--publication", metavar="NAME", help="PostgreSQL: the connector's publication.name")
]
SlotName = Annotated[str, typer.Option("--slot", metavar="NAME", help="PostgreSQL: the connector's slot.name")]


@app.callback()
def source() -> None:
    """Prepare source databases."""


@app.command()
def check(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="postgresql://user@host/database, mysql://user@host/database, or a named connection",
            autocompletion=complete_sources,
        ),
    ],
    *,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="a file in HEADGATE_SECRETS_DIR")
    ] = None,
    tables: Tables = None,
    publication: PublicationName = DEFAULT_NAME,
    slot: SlotName = DEFAULT_NAME,
    output: Format = Output.TABLE,
) -> None:
    """Check that Debezium can capture a database.

    Log settings, replication slots, publication, rights, and the key and replica identity of each table are checked as
    the user in SOURCE, which should be the connector's. Nothing is written. Each fault is shown with the statement that
    fixes it. Exit code 0 only if nothing is wrong.

    Example: headgate source check postgresql://debezium@db.example/shop --password-file debezium --tables 'public.*'
    """
    found = read_waiting(target_at(source, password_file, _OPTIONS, Use.SOURCE), tables or [])
    show_findings(found.findings(publication=publication, slot=slot), output)


def read_waiting(target: Target, patterns: Sequence[str]) -> Capture:
    """A source or a sink and its tables, as ``read_source``. A terminal shows that it is awaited."""
    with waiting(f"the {target.options.place} database"):
        return read_source(target, patterns)


def target_at(given: str, password_file: Path | None, options: AddressOptions, use: Use) -> Target:
    """The database of an address, or of a named connection. Raises DatabaseError, typer.BadParameter."""
    if "://" in given or "=" in given:
        return Target(given, password_file, options)
    if "/" in given or "@" in given:  # not repeated, because it may contain a password
        raise typer.BadParameter(
            f"{options.address} is neither the address of a database nor the name of a connection. Write an address "
            f"like {FORMS}"
        )
    if password_file is not None:
        raise typer.BadParameter(
            f"{given} is a named connection, whose password file is in its entry. Remove {options.password_file}"
        )
    return named(given, use, options.address, or_address=True)[1]
