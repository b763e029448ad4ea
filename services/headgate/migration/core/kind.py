"""The migration owner as a kind of owner: its topics and keys. It watches no other processes."""

from typing import Final

from headgate.records.migration import MigrationMemberKey, MigrationOutcomeKey, MigrationOwnerKey
from headgate.runtime.kind import OwnerKind

MIGRATION_KIND: Final = OwnerKind(
    name="migration",
    topics=("migration", "migration-request", "migration-approval"),
    owner_key=MigrationOwnerKey,
    member_key=MigrationMemberKey,
    harmless={"announce": MigrationMemberKey("-"), "migration": MigrationOutcomeKey("-")},
)
