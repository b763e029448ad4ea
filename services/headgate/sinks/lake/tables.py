"""What a kind of lake tables provides to the fence and the commit that all kinds share.

A table is read at its newest version. Each commit is made on exactly that version, tried once, or raises ConflictError.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from headgate.config.partitioning import PartitionField
from headgate.records.control import Positions
from headgate.sinks.contract import Claim
from headgate.sinks.creating import LakeType

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.sinks.lake.ledger import Feeds, Holdings, Ledger
    from headgate.sinks.lake.partitioning import PartitionRules

__all__ = [
    "FENCE",
    "POSITIONS",
    "Altered",
    "ConflictError",
    "Lake",
    "Rule",
    "Stamp",
    "Upserts",
    "ValueBounds",
    "Version",
    "VersionedTable",
    "copy_key",
    "feed_key",
    "position_key",
    "positions_in",
]

FENCE: Final = "headgate/fence"
"""The transaction of a table that has the version of its ledger which no earlier writer may write under."""

POSITIONS: Final = "headgate.positions"
"""The entry that a commit of changes has in the table's history."""


class ConflictError(Exception):
    """The table is not at the version that was read any more. Nothing was committed."""


class Stamp(msgspec.Struct, frozen=True):
    """What a commit has besides rows: versions of application transactions, and texts for people."""

    transactions: Mapping[str, int] = {}
    about: Mapping[str, str] = {}


class Upserts(msgspec.Struct, frozen=True):
    """Rows that change a table, one for each key, as ``staged_rows`` has them: columns are numbered.

    ``columns``: the table's. ``key``: those of them that find a row.
    """

    rows: "pa.Table"
    columns: Sequence[str]
    key: Sequence[str]


class Altered(msgspec.Struct, frozen=True):
    """What one commit changes of a table's columns.

    ``added``: with the value that existing rows get. ``renamed``: former name → the name now. ``types``: column → its
    wider type. ``relaxed``: columns that may be NULL from now on. Names are those of before the renames.
    """

    added: "Sequence[tuple[pa.Field, pa.Scalar]]"
    renamed: Mapping[str, str]
    types: "Mapping[str, pa.DataType]"
    relaxed: frozenset[str]

    @property
    def fills(self) -> bool:
        """Whether existing rows get a value."""
        return any(value.is_valid for _, value in self.added)


class Version(msgspec.Struct, frozen=True):
    """One version. ``name``: Delta's number, Iceberg's snapshot id. ``entries``: those of Headgate in the commit."""

    name: str
    committed_ms: int
    entries: dict[str, str] = {}


class ValueBounds(msgspec.Struct, frozen=True):
    """Rows whose value in ``column`` is from ``low`` to ``high``, both included; None is unbounded.

    ``among``: and is one of these, if there are any.
    """

    column: str
    low: int | str | None
    high: int | str | None
    among: tuple[int | str, ...] = ()


class TableSize(msgspec.Struct, frozen=True):
    """Data files of a table's newest version, and their bytes together."""

    files: int
    bytes: int


class Expired(msgspec.Struct, frozen=True):
    """How many versions were let go of, and the files that were named by them and by no other one."""

    versions: int = 0
    files: frozenset[str] = frozenset()


class Rule(Protocol):
    """A condition that a table sets for each of its rows."""

    @property
    def text(self) -> str:
        """Its name, and the condition itself."""
        ...

    @property
    def advice(self) -> str:
        """How it is removed: a sentence without its end."""
        ...

    def may_use(self, column: str) -> bool:
        """Whether it may depend on the column."""
        ...

    def is_met(self, rows: "pa.VersionedTable") -> bool:
        """Whether all rows meet it. They have the table's columns. Raises SinkRefusedError if that cannot be known."""
        ...


class VersionedTable(Protocol):
    """One version of a table. Each commit is made on it, and then it is used no more."""

    @property
    def id(self) -> str:
        """The id that the table got when it was created."""
        ...

    @property
    def schema(self) -> "pa.Schema":
        """Its columns."""
        ...

    @property
    def types(self) -> dict[str, str]:
        """Column → type, in the words of its kind."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """Its key, as far as it declares one."""
        ...

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        """How it is divided. A transform that no feed can name has the name that its kind has for it."""
        ...

    @property
    def folders(self) -> dict[str, str]:
        """Column that it is divided by → the name of its field, which folders of files begin with."""
        ...

    def is_name_of_field(self, name: str, former: str | None = None) -> bool:
        """Whether a partition field keeps a column from having that name. ``former``: of a column that is renamed."""
        ...

    @property
    def partition_rules(self) -> "PartitionRules":
        """What it can be partitioned by."""
        ...

    @property
    def ledger(self) -> str | None:
        """The property that binds it to a ledger (lake/binding.py)."""
        ...

    def renaming(self, former: str, name: str) -> str:
        """How a user gives one of the table's columns another name: a sentence for an error."""
        ...

    def check(self, name: str, *, appends: bool) -> None:
        """Raise SinkRefusedError for properties, or names of columns, with which the table cannot be written."""
        ...

    @property
    def rules(self) -> Sequence[Rule]:
        """What its rows must meet, besides the types of its columns and NOT NULL."""
        ...

    def transaction(self, app_id: str) -> int | None:
        """The latest version of the application's own transaction."""
        ...

    def is_set_back_behind(self, written: str) -> bool:
        """Whether the table was set back to a version before its last commit whose entry has ``written``."""
        ...

    def versions(self) -> "Sequence[Version]":
        """All that its log still has, oldest first."""
        ...

    def keys(self, columns: Sequence[str]) -> "pa.Table":
        """These columns of all rows."""
        ...

    def scan(self, columns: Sequence[str], bounds: ValueBounds | None) -> "Iterator[pa.RecordBatch]":
        """These columns of the rows, some at a time and in any order. Only files that may have some are read."""
        ...

    def mark(self, stamp: Stamp) -> None:
        """Commit without rows. Raises ConflictError, SinkError."""
        ...

    def bind(self, ledger: str, stamp: Stamp) -> None:
        """The same, and replace the property that binds it to a ledger. Raises ConflictError, SinkError."""
        ...

    def append(self, rows: "pa.Table", stamp: Stamp) -> None:
        """Add rows. Raises ConflictError, SinkError."""
        ...

    def upsert(self, upserts: Upserts, stamp: Stamp) -> None:
        """Delete, update and insert. Raises ConflictError, SinkError."""
        ...

    def alter(self, altered: Altered, stamp: Stamp) -> None:
        """Change columns, as the lake's rules allow. Raises ConflictError, SinkError."""
        ...

    @property
    def created(self) -> datetime:
        """When it was created, or had its oldest version that is known."""
        ...

    @property
    def size(self) -> TableSize:
        """Its data files now."""
        ...

    def compact(self, target_bytes: int, stamp: Stamp) -> None:
        """Write small files together, without changing a row. Raises ConflictError, SinkError."""
        ...

    def expire(self, before: datetime, stamp: Stamp) -> Expired:
        """Let go of versions that are older, but not of the newest. Raises ConflictError, SinkError."""
        ...

    def remove_unneeded(self, expired: frozenset[str], kept: datetime, orphans: datetime, stamp: Stamp) -> int:
        """Remove files that no version needs, once no earlier attempt can commit; how many.

        These are the ``expired`` ones, those that only versions from before ``kept`` name, and those from before
        ``orphans`` that none names. Raises ConflictError, SinkError.
        """
        ...


class Lake(Protocol):
    """All tables of one sink, and their ledgers."""

    @property
    def kind(self) -> str:
        """What its tables are called."""
        ...

    @property
    def renames(self) -> bool:
        """Whether a column of its tables can be renamed."""
        ...

    @property
    def partition_rules(self) -> "PartitionRules":
        """What its tables can be partitioned by."""
        ...

    def name_problem(self, name: str) -> str | None:
        """Why a column of its tables cannot have that name, which others of the kind may have; None if it can."""
        ...

    def widens(self, old: LakeType, new: LakeType) -> bool:
        """Whether the type of a column can be changed so, given that ``new`` holds every value of ``old``."""
        ...

    def where(self, table: str) -> str:
        """The place of a table, for people. Raises SinkRefusedError."""
        ...

    def sql_name(self, table: str) -> str:
        """What Spark calls the table, quoted."""
        ...

    def create(
        self,
        table: str,
        columns: "pa.Schema",
        properties: dict[str, str],
        comment: str | None,
        partitions: Sequence[PartitionField] = (),
    ) -> None:
        """Create a table. Raises ConflictError if it exists, SinkError."""
        ...

    def check_place(self, *, again: bool) -> None:
        """Raise SinkError unless tables can be fenced and written there, as far as a trial shows it.

        ``again``: see Files of lake/files.py.
        """
        ...

    def table(self, table: str) -> VersionedTable | None:
        """A table at its newest version; None if it does not exist. Raises SinkError."""
        ...

    def ledger(self, table: str) -> "Ledger[Holdings]":
        """A table's ledger. Raises SinkRefusedError."""
        ...

    @property
    def feeds(self) -> "Ledger[Feeds]":
        """The ledger of feeds."""
        ...

    def as_sink_errors(self, doing: str) -> AbstractContextManager[None]:
        """Raise errors of the library, and of files, as the SinkError that means the same."""
        ...

    def close(self) -> None:
        """Let go of connections that are kept open. Idempotent, and the lake may be used again."""
        ...


def feed_key(cluster: str, feed_id: str) -> str:
    """A feed as one text."""
    return f"{cluster}/{feed_id}"


def position_key(claim: Claim, incarnation: int, partition: int) -> str:
    """The application transaction whose version is the next offset of a partition."""
    identity = claim.identity
    return f"headgate/{identity.cluster_id}/{identity.feed_id}/{incarnation}/{claim.topic}/{partition}"


def copy_key(claim: Claim) -> str:
    """The application transaction whose version is the number of the last range that was copied (lake/copying.py)."""
    identity = claim.identity
    return f"headgate/copied/{identity.cluster_id}/{identity.feed_id}/{claim.topic}"


def positions_in(table: VersionedTable | None, claim: Claim, incarnations: dict[int, int]) -> Positions:
    """The next offsets that the table has. ``incarnations``: of each partition."""
    if table is None:
        return {}
    found = {p: table.transaction(position_key(claim, number, p)) for p, number in incarnations.items()}
    return {partition: offset for partition, offset in found.items() if offset is not None}
