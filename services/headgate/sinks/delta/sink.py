"""Delta tables as a sink. delta-rs is imported when a sink is used, because every command imports this module."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config.feed import SinkSpec
from headgate.config.plugs import Writes
from headgate.sinks.delta.address import SCHEME, address_of, folder_of
from headgate.sinks.lake.sink import COMMIT_SECONDS, OPTIONS, LakeSink, not_installed
from headgate.sinks.registry import SinkPlug

if TYPE_CHECKING:
    from headgate.sinks.delta.lake import DeltaLake

__all__ = ["SINK", "DeltaSink"]


class DeltaSink(LakeSink):
    """Tables below one folder."""

    def __init__(self, folder: Path, *, appends: bool = False, keeps_columns: bool = False) -> None:
        super().__init__(lambda: _lake(folder), appends=appends, keeps_columns=keeps_columns)


def _lake(folder: Path) -> "DeltaLake":
    try:
        from headgate.sinks.delta.lake import DeltaLake  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if error.name not in ("deltalake", "arro3"):
            raise
        raise not_installed("delta", "deltalake") from error
    return DeltaLake(folder)


def _open(spec: SinkSpec, _password_file: Path | None, _keeps_session: bool) -> DeltaSink:
    return DeltaSink(folder_of(spec.dsn or ""), appends=spec.mode == "append", keeps_columns=spec.tables == "evolve")


SINK: Final = SinkPlug(
    summary="Delta tables in a folder, equal to the source's tables or with a row for every change",
    writes=Writes.ON_DRIVER,
    options=OPTIONS,
    commit_interval_seconds=COMMIT_SECONDS,
    schemes=(SCHEME,),
    alters_tables=True,
    address=address_of,
    open=_open,
)
