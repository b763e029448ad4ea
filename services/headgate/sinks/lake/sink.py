"""A sink of lake tables. What it needs of libraries is imported when it is used: every command imports this module."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from headgate.provisioning.installing import installing
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable
from headgate.sinks.altering import AlteringRules, ColumnChanges, PresentTable
from headgate.sinks.contract import Applied, Claim, FeedIdentity, SinkRefusedError, TableShape
from headgate.sinks.creating import NewTable, PartitionRefusal
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.maintaining import Maintained, Upkeep
from headgate.sinks.on_driver import Committer, StagedWriter, Stager
from headgate.sinks.row_copying import CopiedRows, CopyMark
from headgate.sinks.target_rows import TargetRows

if TYPE_CHECKING:
    from headgate.sinks.lake.altering import LakeAlterer
    from headgate.sinks.lake.claims import Claims
    from headgate.sinks.lake.copying import LakeCopier
    from headgate.sinks.lake.maintenance import Maintenance
    from headgate.sinks.lake.tables import Lake

__all__ = ["COMMIT_SECONDS", "OPTIONS", "LakeSink", "not_installed"]

OPTIONS: Final = frozenset(
    {"commit_interval_seconds", "maintenance", "mode", "partition_by", "snapshot", "store", "tables", "types"}
)
"""Of ``sink``, for every lake."""

COMMIT_SECONDS: Final = 60.0
"""Each commit is a file or more, and a version that readers list: at one a second, 86 400 a day."""


class LakeSink:
    """All tables of one lake. ``appends``: each change becomes a row, instead of changing one.

    ``keeps_columns``: it keeps which columns its tables had when rows were written (sinks/known_columns.py).

    ``open_lake`` raises SinkRefusedError if its library is not installed.
    """

    def __init__(self, open_lake: "Callable[[], Lake]", *, appends: bool = False, keeps_columns: bool = False) -> None:
        self._open_lake = open_lake
        self._appends = appends
        self._keeps_columns = keeps_columns

    @cached_property
    def _lake(self) -> "Lake":
        return self._open_lake()

    @property
    def appends(self) -> bool:
        """Whether each change becomes a row."""
        return self._appends

    def lake(self) -> "Lake":
        """Its tables, to be read."""
        return self._lake

    @cached_property
    def _claims(self) -> "Claims":
        from headgate.sinks.lake.claims import Claims  # noqa: PLC0415 - see above

        return Claims(self._lake)

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """See Sink."""
        from headgate.sinks.lake.shape import existing  # noqa: PLC0415 - see above

        self._lake.check_place(again=True)
        shapes = {}
        for name in tables:
            found = existing(self._lake, name, appends=self._appends)
            if identity is not None:
                self._claims.refuse_others(name, identity)
            shapes[name] = TableShape(name, found.types, found.key, secondary_unique=False)
        return shapes

    def prepare(self, claim: Claim, partitions: int) -> None:  # noqa: ARG002
        """See Preparing."""
        self._claims.check_is_ours(claim, self._lake.table(claim.table))

    def lacks(self, table: str) -> bool:
        """See CreatesTables."""
        self._lake.check_place(again=True)
        return self._lake.table(table) is None

    def name_problem(self, name: str) -> str | None:
        """See CreatesTables."""
        from headgate.sinks.lake.creating import name_problem  # noqa: PLC0415 - see above

        return name_problem(name, appends=self._appends) or self._lake.name_problem(name)

    def partition_refusals(self, table: NewTable) -> tuple[PartitionRefusal, ...]:
        """See CreatesTables."""
        from headgate.sinks.lake.creating import columns_of  # noqa: PLC0415 - see above
        from headgate.sinks.lake.partitioning import partition_refusals  # noqa: PLC0415 - see above

        types = {column.name: column.type.name for column in columns_of(table, appends=self._appends)}
        return tuple(partition_refusals(table, types, self._lake.partition_rules))

    def partitions_of(self, table: str) -> tuple[str, ...] | None:
        """See CreatesTables."""
        found = self._lake.table(table)
        return None if found is None else tuple(field.text for field in found.partitions)

    def statement(self, table: NewTable) -> str:
        """See CreatesTables."""
        from headgate.sinks.lake.creating import statement_of  # noqa: PLC0415 - see above

        return statement_of(table, self._lake.sql_name(table.name), self._lake.kind, appends=self._appends)

    def create(self, table: NewTable) -> bool:
        """See CreatesTables. The table exists with its first commit, which no other process can make too."""
        from headgate.sinks.lake.creating import properties_of, schema_of  # noqa: PLC0415 - see above
        from headgate.sinks.lake.tables import ConflictError  # noqa: PLC0415 - see above

        columns = schema_of(table, appends=self._appends)
        try:
            self._lake.create(table.name, columns, properties_of(table), table.comment, table.partitions)
        except ConflictError:
            return False
        return True

    def is_new(self, claim: Claim) -> bool:
        """See Untouched."""
        return self._claims.is_new(claim)

    def claim(self, claim: Claim) -> Positions:
        """See Sink. A claim is what the fence begins with, so the place is known to be able to have one."""
        self._lake.check_place(again=False)
        return self._claims.claim(claim)

    def seal(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._claims.seal(claim)

    def positions(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._claims.positions(claim)

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See Sink."""
        return self._claims.source_table(claim)

    def forget(self, identity: FeedIdentity) -> None:
        """See Sink."""
        self._claims.forget(identity)

    def stager(self) -> Stager:
        """See DriverSink."""
        from headgate.sinks.lake.staging import LakeStager  # noqa: PLC0415 - see above

        known = self._claims.known_columns if self._keeps_columns else None
        return LakeStager(self._lake, known, appends=self._appends)

    def committer(self) -> Committer:
        """See DriverSink."""
        from headgate.sinks.lake.committing import LakeCommitter  # noqa: PLC0415 - see above

        return LakeCommitter(self._lake, self._claims, appends=self._appends, keeps_columns=self._keeps_columns)

    @cached_property
    def _maintenance(self) -> "Maintenance":
        from headgate.sinks.lake.maintenance import Maintenance  # noqa: PLC0415 - see above

        return Maintenance(self._lake, self._claims)

    def maintained_at(self, claim: Claim) -> datetime | None:
        """See MaintainsTables."""
        return self._maintenance.last(claim)

    def maintain(self, claim: Claim, upkeep: Upkeep, now: datetime) -> Maintained:
        """See MaintainsTables."""
        return self._maintenance.run(claim, upkeep, now)

    @cached_property
    def _copier(self) -> "LakeCopier":
        from headgate.sinks.lake.copying import LakeCopier  # noqa: PLC0415 - see above

        return LakeCopier(self._lake, self._claims, appends=self._appends)

    def writer(self) -> "LakeWriter":
        """See Sink."""
        return LakeWriter(self, self._copier)

    def copied(self, claim: Claim, request: str) -> CopyMark:
        """See RowCopyingSink."""
        return self._copier.copied(claim, request)

    def known_columns(self, claim: Claim) -> KnownColumns:
        """See ColumnKeepingSink."""
        return self._claims.known_columns(claim)

    def change_known_columns(
        self, claim: Claim, positions: Positions, change: "Callable[[KnownColumns], KnownColumns]"
    ) -> None:
        """See ColumnKeepingSink."""
        self._alterer.change_known_columns(claim, positions, change)

    @cached_property
    def _alterer(self) -> "LakeAlterer":
        from headgate.sinks.lake.altering import LakeAlterer  # noqa: PLC0415 - see above

        return LakeAlterer(self._lake, self._claims, appends=self._appends)

    def altering_rules(self, table: str) -> AlteringRules:
        """See AltersTables."""
        return self._alterer.rules(table)

    def present_table(self, table: str) -> PresentTable | None:
        """See AltersTables."""
        return self._alterer.present(table)

    def alter(self, claim: Claim, positions: Positions, before: PresentTable, changes: ColumnChanges) -> bool:
        """See AltersTables."""
        return self._alterer.alter(claim, positions, before, changes)

    def rows(self) -> TargetRows:
        """See RowReadingSink."""
        from headgate.sinks.lake.reading import LakeRows  # noqa: PLC0415 - see above

        return LakeRows(self._lake, appends=self._appends)

    def close(self) -> None:
        """See Sink."""
        if "_lake" in self.__dict__:  # it was opened
            self._lake.close()


class LakeWriter(StagedWriter):
    """Writes batches in one process, without a task, and copied rows wherever they are."""

    def __init__(self, sink: LakeSink, copier: "LakeCopier") -> None:
        super().__init__(sink)
        self._copier = copier

    def copy(self, rows: CopiedRows) -> Applied:
        """See RowCopyingWriter."""
        return self._copier.copy(rows)


def not_installed(type_: str, package: str) -> SinkRefusedError:
    """The library of a sink is not here. The extra has the name of ``sink.type``."""
    return SinkRefusedError(
        f"sinks of type {type_} need the package {package}, which is not installed here. Run, for coordinators "
        f"and agents: {installing(type_)}"
    )
