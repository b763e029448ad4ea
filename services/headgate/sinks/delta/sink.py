"""Delta tables as a sink. delta-rs is imported when a sink is used, because every command imports this module."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config.plugs import Writes
from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Target
from headgate.sinks import registry
from headgate.sinks.delta.address import SCHEMES, address_of
from headgate.sinks.lake.files import LocalFiles
from headgate.sinks.lake.sink import COMMIT_SECONDS, OPTIONS, LakeSink, not_installed
from headgate.sinks.lake.store import StoreFiles
from headgate.sinks.registry import SinkPlug

if TYPE_CHECKING:
    from headgate.sinks.delta.lake import DeltaLake

__all__ = ["SINK", "DeltaSink"]


class DeltaSink(LakeSink):
    """Tables below one place. ``find`` is asked again and again, because keys to an object store may be replaced."""

    def __init__(self, find: Callable[[], Target], *, appends: bool = False, keeps_columns: bool = False) -> None:
        super().__init__(lambda: _lake(find), appends=appends, keeps_columns=keeps_columns)


def _lake(find: Callable[[], Target]) -> "DeltaLake":
    try:
        from headgate.sinks.delta.lake import DeltaLake  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if error.name not in ("deltalake", "arro3"):
            raise
        raise not_installed("delta", "deltalake") from error
    address = address_of(find().dsn)
    if address.buckets:
        return DeltaLake(StoreFiles(find, address.buckets[0], is_exclusive=True))
    return DeltaLake(LocalFiles(address.folders[0]))


def _open(spec: SinkSpec, _password_file: Path | None, _keeps_session: bool) -> DeltaSink:
    return DeltaSink(
        partial(registry.target_of, spec), appends=spec.mode == "append", keeps_columns=spec.tables == "evolve"
    )


SINK: Final = SinkPlug(
    summary="Delta tables in a folder or an object store, equal to the source's tables or with a row for every change",
    writes=Writes.ON_DRIVER,
    options=OPTIONS,
    commit_interval_seconds=COMMIT_SECONDS,
    schemes=SCHEMES,
    alters_tables=True,
    address=address_of,
    open=_open,
)
