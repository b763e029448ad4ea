"""Delta tables as a sink. delta-rs is imported when a sink is used, because every command imports this module."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config.feed import SinkSpec
from headgate.config.plugs import Writes
from headgate.sinks.creating import NewTable
from headgate.sinks.delta.address import SCHEME, address_of, folder_of
from headgate.sinks.lake.sink import COMMIT_SECONDS, LakeSink, not_installed
from headgate.sinks.registry import SinkPlug

if TYPE_CHECKING:
    from headgate.sinks.delta.lake import DeltaLake

__all__ = ["SINK", "DeltaSink"]


class DeltaSink(LakeSink):
    """Tables below one folder."""

    def __init__(self, folder: Path, *, appends: bool = False) -> None:
        super().__init__(lambda: _lake(folder), appends=appends)
        self._folder = folder

    def lacks(self, table: str) -> bool:
        """See CreatesTables."""
        return self._lake.table(table) is None

    def name_problem(self, name: str) -> str | None:
        """See CreatesTables."""
        from headgate.sinks.lake.creating import name_problem  # noqa: PLC0415 - see above

        return name_problem(name, appends=self._appends)

    def statement(self, table: NewTable) -> str:
        """See CreatesTables."""
        from headgate.sinks.lake.creating import statement_of  # noqa: PLC0415 - see above

        return statement_of(table, f"delta.`{self._lake.where(table.name)}`", appends=self._appends)

    def create(self, table: NewTable) -> bool:
        """See CreatesTables. The table exists with its first commit, which no other process can make too."""
        from headgate.sinks.lake.creating import properties_of, schema_of  # noqa: PLC0415 - see above
        from headgate.sinks.lake.tables import ConflictError  # noqa: PLC0415 - see above

        columns = schema_of(table, appends=self._appends)
        try:
            _lake(self._folder).create(table.name, columns, properties_of(table), table.comment)
        except ConflictError:
            return False
        return True


def _lake(folder: Path) -> "DeltaLake":
    try:
        from headgate.sinks.delta.lake import DeltaLake  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if error.name not in ("deltalake", "arro3"):
            raise
        raise not_installed("delta", "deltalake") from error
    return DeltaLake(folder)


def _open(spec: SinkSpec, _password_file: Path | None, _keeps_session: bool) -> DeltaSink:
    return DeltaSink(folder_of(spec.dsn or ""), appends=spec.mode == "append")


SINK: Final = SinkPlug(
    summary="Delta tables in a folder, equal to the source's tables or with a row for every change",
    writes=Writes.ON_DRIVER,
    options=frozenset({"commit_interval_seconds", "mode", "tables", "types"}),
    commit_interval_seconds=COMMIT_SECONDS,
    schemes=(SCHEME,),
    address=address_of,
    open=_open,
)
