"""Settings and rights of a PostgreSQL that matter for a source of changes."""

import msgspec

from headgate.capture.tables import SourceTable


class Partition(msgspec.Struct, frozen=True):
    """A partition that has rows. ``identity`` is a letter of pg_class, as in PostgresTable."""

    schema: str
    table: str
    identity: str
    is_unlogged: bool


class PostgresTable(SourceTable, frozen=True, kw_only=True):
    """A table or a view. ``kind`` and ``identity`` are letters of pg_class (relkind, relreplident)."""

    kind: str = "r"
    identity: str = "d"
    is_unlogged: bool = False
    partitions: tuple[Partition, ...] = ()
    may_use_schema: bool = True

    @property
    def is_view(self) -> bool:
        """See SourceTable. A foreign table counts as one."""
        return self.kind not in "rp"

    @property
    def parts(self) -> tuple["PostgresTable | Partition", ...]:
        """The table and its partitions. Each has a replica identity of its own, whatever the others have."""
        return (self, *self.partitions)

    @property
    def is_partitioned(self) -> bool:
        """Whether it is a partitioned table. Its partitions are not tables of their own here."""
        return self.kind == "p"


class Slot(msgspec.Struct, frozen=True):
    """A replication slot. ``retained_bytes``: WAL that it keeps, None on a standby."""

    name: str
    plugin: str | None
    database: str | None
    is_active: bool
    wal_status: str | None
    retained_bytes: int | None


class Publication(msgspec.Struct, frozen=True):
    """A publication: what it publishes, and for which tables."""

    name: str
    all_tables: bool
    operations: frozenset[str]
    via_root: bool
    tables: frozenset[tuple[str, str]]
    filtered: frozenset[tuple[str, str]] = frozenset()
    """Tables whose rows a WHERE clause selects."""


class PostgresFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the rules ask for, read in one session."""

    database: str
    user: str
    version: int
    """As ``server_version_num``: 180001."""
    wal_level: str
    is_standby: bool
    slots_max: int
    senders_max: int
    senders: int
    replication_grant: str | None = None
    """The statement that lets the user open replication slots; None if it may."""
    slots: tuple[Slot, ...] = ()
    publications: tuple[Publication, ...] = ()
    tables: tuple[PostgresTable, ...] = ()
    own_id: str | None = None
    """The same however the database's address is spelled. None where the server keeps it to administrators."""
