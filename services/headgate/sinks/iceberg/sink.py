"""Iceberg tables as a sink. pyiceberg is imported when a sink is used, because every command imports this module."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config.plugs import Writes
from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Address, Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.iceberg.address import SCHEMES, address_of, place_of
from headgate.sinks import registry
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.credentials import check_credentials
from headgate.sinks.lake.sink import COMMIT_SECONDS, OPTIONS, LakeSink, not_installed
from headgate.sinks.registry import SinkPlug

if TYPE_CHECKING:
    from headgate.sinks.iceberg.lake import IcebergLake

__all__ = ["SINK", "IcebergSink"]


class IcebergSink(LakeSink):
    """Tables of one catalog. ``find`` is asked for each session, because a connection and a password may be changed."""

    def __init__(self, find: Callable[[], Target], *, appends: bool = False, keeps_columns: bool = False) -> None:
        super().__init__(lambda: _lake(find), appends=appends, keeps_columns=keeps_columns)


def _lake(find: Callable[[], Target]) -> "IcebergLake":
    try:
        from headgate.sinks.iceberg.lake import IcebergLake  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if error.name not in ("pyiceberg", "sqlalchemy"):
            raise
        raise not_installed("iceberg", "pyiceberg") from error
    return IcebergLake(find)


def _open(spec: SinkSpec, password_file: Path | None, _keeps_session: bool) -> IcebergSink:
    target = registry.target_of(spec)
    place = place_of(target.dsn, target.options)
    check_credentials(place, password_file, target.options)
    return IcebergSink(
        partial(registry.target_of, spec), appends=spec.mode == "append", keeps_columns=spec.tables == "evolve"
    )


def _address(dsn: str) -> Address:
    """As a feed gives it. Raises SinkRefusedError."""
    try:
        return address_of(dsn)
    except DatabaseRefusedError as error:
        raise SinkRefusedError(str(error)) from error


SINK: Final = SinkPlug(
    summary="Iceberg tables of a catalog, equal to the source's tables or with a row for every change",
    writes=Writes.ON_DRIVER,
    options=OPTIONS | {"connection", "password_file"},
    commit_interval_seconds=COMMIT_SECONDS,
    schemes=SCHEMES,
    alters_tables=True,
    partition_transforms=True,
    address=_address,
    open=_open,
)
