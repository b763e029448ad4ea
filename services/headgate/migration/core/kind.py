"""The migration owner as a kind of owner: its topic and keys. It watches no other processes."""

from typing import Final

from headgate.records.migration import MigrationMemberKey, MigrationOutcomeKey, MigrationOwnerKey
from headgate.runtime.kind import OwnerKind

MIGRATION_KIND: Final = OwnerKind(
    name="migration",
    topics=("migration",),
    owner_key=MigrationOwnerKey,
    member_key=MigrationMemberKey,
    harmless={"announce": MigrationMemberKey("-"), "migration": MigrationOutcomeKey("-")},
)
