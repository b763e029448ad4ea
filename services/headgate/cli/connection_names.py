"""Names of connections and schema registries that the TAB key completes: those that HEADGATE_CONNECTIONS describes."""

from collections.abc import Callable, Sequence
from typing import Final

import typer

from headgate.cli.names import Complete, within_bounds
from headgate.databases.connections import Use, connection_names, registry_names


def _among(find: Callable[[], Sequence[str]]) -> Complete:
    def complete(_ctx: typer.Context, incomplete: str) -> list[str]:
        return [name for name in within_bounds(find) if name.startswith(incomplete)]

    return complete


complete_sources: Final = _among(lambda: connection_names(Use.SOURCE))
complete_sinks: Final = _among(lambda: connection_names(Use.SINK))
complete_databases: Final = _among(lambda: connection_names(Use.MIGRATION))
complete_registries: Final = _among(registry_names)
