"""The owner of generations as a kind of owner (runtime/kind.py): one shard, which is the topic generation."""

from typing import Final

from headgate.records.keys import GenerationMemberKey, GenerationOutcomeKey, GenerationOwnerKey
from headgate.runtime.kind import OwnerKind

__all__ = ["GENERATION_KIND", "GENERATION_SHARD"]

GENERATION_SHARD: Final = 0
"""All sets have one owner: a switch is a few records, and a set that is not switched costs nothing."""

GENERATION_KIND: Final = OwnerKind(
    name="generation",
    topics=("generation",),
    owner_key=GenerationOwnerKey,
    member_key=GenerationMemberKey,
    harmless={"announce": GenerationMemberKey("-"), "generation": GenerationOutcomeKey("-", "-")},
)
