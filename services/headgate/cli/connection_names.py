"""Names of connections and schema registries that the TAB key completes: those that HEADGATE_CONNECTIONS describes."""

from collections.abc import Callable, Sequence
from typing import Final

import typer

from headgate.cli.names import Complete, within_bounds


def _among(find: Callable[[], Sequence[str]]) -> Complete:
    def complete(_ctx: typer.Context, incomplete: str) -> list[str]:
        return [name for name in within_bounds(find) if name.startswith(incomplete)]

    return complete


def _connections(use: str) -> Sequence[str]:
    # Only completion needs these, and they import the drivers of databases.
    from headgate.databases.connections import Use, connection_names  # noqa: PLC0415

    return connection_names(Use(use))


def _registries() -> Sequence[str]:
    from headgate.databases.connections import registry_names  # noqa: PLC0415 - see above

    return registry_names()


complete_sources: Final = _among(lambda: _connections("source"))
complete_sinks: Final = _among(lambda: _connections("sink"))
complete_databases: Final = _among(lambda: _connections("migration"))
complete_registries: Final = _among(_registries)
