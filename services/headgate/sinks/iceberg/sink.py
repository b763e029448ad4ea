"""Iceberg tables as a sink. pyiceberg is imported when a sink is used, because every command imports this module."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config.feed import SinkSpec
from headgate.config.plugs import Writes
from headgate.config.secrets import NotPermittedError, check_folder
from headgate.databases.address import SINK as NAMES
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.address import SCHEME, Place, address_of, place_of
from headgate.sinks.lake.sink import COMMIT_SECONDS, OPTIONS, LakeSink, not_installed
from headgate.sinks.registry import SinkPlug

if TYPE_CHECKING:
    from headgate.sinks.iceberg.lake import IcebergLake

__all__ = ["SINK", "IcebergSink"]


class IcebergSink(LakeSink):
    """Tables of one catalog."""

    def __init__(self, place: Place, *, appends: bool = False) -> None:
        super().__init__(lambda: _lake(place), appends=appends)


def _lake(place: Place) -> "IcebergLake":
    try:
        from headgate.sinks.iceberg.lake import IcebergLake  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if error.name not in ("pyiceberg", "sqlalchemy"):
            raise
        raise not_installed("iceberg", "pyiceberg") from error
    return IcebergLake(place)


def _open(spec: SinkSpec, _password_file: Path | None, _keeps_session: bool) -> IcebergSink:
    place = place_of(spec.dsn or "")
    try:
        check_folder(place.warehouse, f"{NAMES.address}: warehouse")
    except NotPermittedError as error:
        raise SinkRefusedError(str(error)) from error
    return IcebergSink(place, appends=spec.mode == "append")


SINK: Final = SinkPlug(
    summary="Iceberg tables of a catalog, equal to the source's tables or with a row for every change",
    writes=Writes.ON_DRIVER,
    options=OPTIONS,
    commit_interval_seconds=COMMIT_SECONDS,
    schemes=(SCHEME,),
    address=address_of,
    open=_open,
)
