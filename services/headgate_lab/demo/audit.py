"""An audit of every single change in the target, by triggers that know nothing of Headgate's own bookkeeping.

A trigger on each target table writes down, in the order of the commits, who changed which key from which version to
which. A second one, put on Headgate's progress table the moment that table is created, writes down claims and seals, so
that a write by a former holder is seen even if its successor has not written yet. In the source a trigger writes down
which version of which key was deleted (``audit_triggers.py``). ``examine`` then checks the whole record (guarantee 1 of
the design):

- was anything changed under an epoch after a higher one had claimed or written the table, or after it was sealed?
- did a row's version ever stay the same (a change applied twice) or decrease (applied late)?
- did a copy of the source's rows (a snapshot, `table resync`) set a row back behind what the log had made of it?
- was a row deleted that the source did not delete at that point of its history (a delete applied twice, or late)?
- was anything changed by a session that does not name the assignment it writes for?
- does the last version seen agree with the row in the table, that is: was the audit itself complete?

A copy reads rows as they are at the source, ahead of the log, which is then applied over them. So the versions that the
log brings are judged among themselves, as if nothing had been copied.

Each finding counts as one double write. The audit can fail: ``tests/integration/demo/test_audit.py`` makes it.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from headgate.records.control import Epoch
from headgate_lab.demo.schema import TABLES

ENTRIES_PER_FETCH: Final = 5_000
FINDINGS_SHOWN_MAX: Final = 20
"""Kept with their details; all are counted."""

LABEL: Final = re.compile(r"headgate (?P<feed>\S+) (?P<table>\S+) (?P<owner_rev>\d+)\.(?P<n>\d+)")
"""How a session of a sink identifies itself: in PostgreSQL by its application_name."""

Key = tuple[str, ...]


class FindingKind(StrEnum):
    """What can be wrong with a change."""

    STALE_EPOCH = "stale_epoch"
    SEALED_EPOCH = "sealed_epoch"
    VERSION_REPEATED = "version_repeated"
    VERSION_BACK = "version_back"
    COPIED_BACK = "copied_back"
    DELETE_UNEXPLAINED = "delete_unexplained"
    UNLABELLED = "unlabelled"
    UNSEEN = "unseen"


class AuditFinding(msgspec.Struct, frozen=True):
    """One change that should not be; ``entry`` is its number in audit.entries, None for a row never seen changing."""

    kind: FindingKind
    table: str
    key: Key
    entry: int | None
    detail: str


class AuditEntry(msgspec.Struct, frozen=True):
    """One line of the record: a change of a row, or of a table's holder (CLAIM or SEAL, ``label`` is the epoch).

    ``is_copied``: the row was read at the source, not in the log.
    """

    id: int
    label: str
    table: str
    operation: str
    key: Key
    old_version: int | None
    new_version: int | None
    is_copied: bool = False


class AuditReport(msgspec.Struct, frozen=True):
    """What the audit saw: changes of rows (``copies`` of them copied), claims and seals, and findings.

    The first few findings have details.
    """

    changes: int
    claims: int
    counts: dict[FindingKind, int]
    findings: tuple[AuditFinding, ...]
    copies: int = 0

    @property
    def double_writes(self) -> int:
        """All findings; must be 0."""
        return sum(self.counts.values())


Deletions = Mapping[tuple[str, Key], list[int]]
"""(table, key) → versions at which the source deleted the row, ascending."""


# --- examining --------------------------------------------------------------------------------------------------


class _Examiner:
    def __init__(self, deletions: Deletions) -> None:
        self.deletions = deletions
        self.counts: Counter[FindingKind] = Counter()
        self.findings: list[AuditFinding] = []
        self.changes = 0
        self.copies = 0
        self.claims = 0
        self.epochs: dict[str, Epoch] = {}
        self.sealed: dict[str, Epoch] = {}
        self.versions: dict[tuple[str, Key], int] = {}
        """What each row was left at, by whatever wrote it."""
        self.logged: dict[tuple[str, Key], int] = {}
        """The highest version that the log has brought."""
        self.open_deletes: dict[tuple[str, Key], AuditEntry] = {}

    def find(self, kind: FindingKind, entry: AuditEntry, detail: str) -> None:
        self.counts[kind] += 1
        if len(self.findings) < FINDINGS_SHOWN_MAX:
            self.findings.append(AuditFinding(kind, entry.table, entry.key, entry.id, detail))

    def take(self, entry: AuditEntry) -> None:
        if entry.operation in ("CLAIM", "SEAL"):
            self._hold(entry)
            return
        self.changes += 1
        self._check_epoch(entry)
        where = (entry.table, entry.key)
        if entry.operation == "DELETE":
            self.open_deletes[where] = entry
            self._check_delete_of_known(entry)
            return
        version = entry.new_version
        if version is None:
            raise ValueError(f"audit entry {entry.id}: {entry.operation} without a version")
        self._check_version(entry, version)
        if (deleted := self.open_deletes.pop(where, None)) is not None:
            self._check_delete(deleted, version)
        self.versions[where] = version
        if not entry.is_copied:
            self.logged[where] = max(version, self.logged.get(where, version))

    def _check_version(self, entry: AuditEntry, version: int) -> None:
        known = self.logged.get((entry.table, entry.key))
        if entry.is_copied:
            self.copies += 1
            if known is not None and version < known:
                self.find(FindingKind.COPIED_BACK, entry, f"version {version} copied after version {known}")
        elif known is not None and version <= known:
            kind = FindingKind.VERSION_REPEATED if version == known else FindingKind.VERSION_BACK
            self.find(kind, entry, f"version {version} after version {known}")

    def _hold(self, entry: AuditEntry) -> None:
        self.claims += 1
        epoch = _parse_epoch(entry.label)
        if entry.operation == "SEAL":
            self.sealed[entry.table] = max(epoch, self.sealed.get(entry.table, epoch))
        self.epochs[entry.table] = max(epoch, self.epochs.get(entry.table, epoch))

    def _check_epoch(self, entry: AuditEntry) -> None:
        label = LABEL.fullmatch(entry.label)
        if label is None or label["table"] != entry.table:
            self.find(FindingKind.UNLABELLED, entry, f"{entry.operation} by a session called {entry.label!r}")
            return
        epoch = Epoch(int(label["owner_rev"]), int(label["n"]))
        highest = self.epochs.get(entry.table, epoch)
        if epoch < highest:
            self.find(FindingKind.STALE_EPOCH, entry, f"{entry.operation} under {epoch}, {highest} holds the table")
        sealed = self.sealed.get(entry.table)
        if sealed is not None and epoch <= sealed:
            self.find(FindingKind.SEALED_EPOCH, entry, f"{entry.operation} under {epoch}, {sealed} was sealed")
        self.epochs[entry.table] = max(epoch, highest)

    def _check_delete_of_known(self, entry: AuditEntry) -> None:
        known = self.versions.get((entry.table, entry.key))
        if known != entry.old_version:
            self.find(FindingKind.UNSEEN, entry, f"version {entry.old_version} deleted, {known} was the last one seen")

    def _check_delete(self, entry: AuditEntry, next_version: int | None) -> None:
        """Between the version that was deleted here and the next one here, the source must have deleted the row too."""
        where = (entry.table, entry.key)
        versions = self.deletions.get(where, [])
        # A copied row may be newer than the deletion, which is then older in the log than what was copied.
        place = bisect_left(versions, min(entry.old_version or 0, self.logged.get(where, 0)))
        explained = place < len(versions) and (next_version is None or versions[place] < next_version)
        if not explained:
            self.find(
                FindingKind.DELETE_UNEXPLAINED, entry, f"version {entry.old_version} deleted, not so in the source"
            )

    def close(self, standing: Iterable[tuple[str, Key, int]]) -> AuditReport:
        for deleted in self.open_deletes.values():
            self._check_delete(deleted, None)
        for table, key, version in standing:
            known = self.versions.get((table, key))
            if known != version or (table, key) in self.open_deletes:
                self.counts[FindingKind.UNSEEN] += 1
                detail = f"is at version {version}, the last change seen gave {known}"
                if len(self.findings) < FINDINGS_SHOWN_MAX:
                    self.findings.append(AuditFinding(FindingKind.UNSEEN, table, key, None, detail))
        return AuditReport(self.changes, self.claims, dict(self.counts), tuple(self.findings), self.copies)


def examine(
    entries: Iterable[AuditEntry], deletions: Deletions, standing: Iterable[tuple[str, Key, int]] = ()
) -> AuditReport:
    """Examine the record. ``entries`` in order of their ids, ``standing`` (table, key, version) of each row now."""
    examiner = _Examiner(deletions)
    for entry in entries:
        examiner.take(entry)
    return examiner.close(standing)


def _parse_epoch(text: str) -> Epoch:
    owner_rev, _, n = text.partition(".")
    return Epoch(int(owner_rev), int(n))


def audit(source: Connection, target: Connection) -> AuditReport:
    """Examine everything the triggers wrote down in the two databases. Writers and feed must be at rest."""
    deletions = read_deletions(source)
    with target.transaction():
        return examine(_entries(target), deletions, _standing(target))


def read_deletions(source: Connection) -> Deletions:
    """What the source's trigger wrote down."""
    deletions: dict[tuple[str, Key], list[int]] = {}
    rows = source.execute('SELECT "table", key, version FROM audit.deletions ORDER BY version').fetchall()
    for table, key, version in rows:
        deletions.setdefault((table, tuple(key)), []).append(version)
    return deletions


def _entries(target: Connection) -> Iterator[AuditEntry]:
    with target.cursor("audit_entries") as cursor:
        cursor.itersize = ENTRIES_PER_FETCH
        cursor.execute(
            'SELECT id, label, "table", operation, key, old_version, new_version, is_copied '
            "FROM audit.entries ORDER BY id"
        )
        for number, label, table, operation, key, *rest in cursor:
            yield AuditEntry(number, label, table, operation, tuple(key), *rest)


def _standing(target: Connection) -> Iterator[tuple[str, Key, int]]:
    for table in TABLES:
        query = SQL("SELECT ARRAY[{key}]::text[], version FROM {table}").format(
            key=SQL(", ").join(SQL("{}::text").format(Identifier(column)) for column in table.key),
            table=table.identifier,
        )
        with target.cursor(f"audit_{table.name}") as cursor:
            cursor.itersize = ENTRIES_PER_FETCH
            cursor.execute(query)
            for key, version in cursor:
                yield table.full_name, tuple(key), version
