"""The owner of generations as a kind of owner (runtime/kind.py): the sets of a shard have one owner."""

from typing import Final

from headgate.records.generation import GenerationMemberKey, GenerationOutcomeKey, GenerationOwnerKey
from headgate.runtime.kind import OwnerKind

GENERATION_KIND: Final = OwnerKind(
    name="generation",
    topics=("generation",),
    owner_key=GenerationOwnerKey,
    member_key=GenerationMemberKey,
    harmless={"announce": GenerationMemberKey("-"), "generation": GenerationOutcomeKey("-", "-")},
)
