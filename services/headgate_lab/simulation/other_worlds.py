"""Histories of other owners than the coordinator: switches of a change log, and migrations."""

import traceback
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

import msgspec

from headgate.generation.owner.core.machine import GENERATION
from headgate.migration.core.machine import MIGRATIONS
from headgate_lab.simulation.campaign import FRAMES_SHOWN
from headgate_lab.simulation.migrations.world import MigrationWorld
from headgate_lab.simulation.switches.world import SwitchProfile, SwitchWorld

__all__ = ["OtherCampaign", "OtherPlayed", "OtherWorld", "draw_switches", "play_all"]


class OtherWorld(StrEnum):
    """What a history is about."""

    SWITCHES = "switches"
    MIGRATIONS = "migrations"


STORM: Final = SwitchProfile(seed=0, crash_rate=0.015, freeze_rate=0.015, switch_rate=0.03, changes=120)
"""Writers, readers and owners die or freeze every few seconds of the world's clock."""

LATE: Final = msgspec.structs.replace(STORM, crash_rate=0.004, freeze_rate=0.002, late=True)

KINDS: Final[tuple[SwitchProfile, ...]] = (
    STORM,
    msgspec.structs.replace(STORM, feed_parts=1),
    msgspec.structs.replace(STORM, feed_parts=3),
    msgspec.structs.replace(STORM, partitions=3, grow_rate=0.01),
    msgspec.structs.replace(STORM, delete_at=700),
    LATE,
    msgspec.structs.replace(LATE, retention_rate=0.01),
    msgspec.structs.replace(STORM, partitions=3, grow_rate=0.01, feed_parts=2),
)
"""One after the other, seed by seed: a reader, a feed, a divided feed, a log that grows, one that is re-created, late
readers, retention that takes what they have not read, and a log that grows under a divided feed."""


class OtherPlayed(msgspec.Struct, frozen=True):
    """One history: ``digest`` is of the state that its log gives; ``finding`` is None if everything held."""

    seed: int
    finding: str | None
    steps: int
    digest: str


class OtherCampaign(msgspec.Struct):
    """What is known after some seeds."""

    seeds: int = 0
    steps: int = 0
    findings: list[OtherPlayed] = msgspec.field(default_factory=list)

    def add(self, played: OtherPlayed) -> None:
        """One more history."""
        self.seeds += 1
        self.steps += played.steps
        if played.finding is not None:
            self.findings.append(played)


def draw_switches(seed: int) -> SwitchProfile:
    """The history of a seed: its kind, and every fourth in strict mode."""
    return msgspec.structs.replace(KINDS[seed % len(KINDS)], seed=seed, strict=seed % 4 == 0)


def play_all(world: OtherWorld, seeds: Iterable[int], tell: Callable[[OtherPlayed], None]) -> OtherCampaign:
    """The histories of these seeds, one after the other."""
    campaign, play = OtherCampaign(), _switches if world is OtherWorld.SWITCHES else _migrations
    for seed in seeds:
        played = play(seed)
        campaign.add(played)
        tell(played)
    return campaign


def _switches(seed: int) -> OtherPlayed:
    world = SwitchWorld(draw_switches(seed))
    finding = _found(world.run)
    return OtherPlayed(seed, finding, world.steps, GENERATION.digest(world.state()))


def _migrations(seed: int) -> OtherPlayed:
    world = MigrationWorld(seed)
    finding = _found(world.run)
    return OtherPlayed(seed, finding, world.steps, MIGRATIONS.digest(world.state()))


def _found(run: Callable[[], object]) -> str | None:
    """What a history finds: a guarantee that does not hold, or a machine that raises."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - whatever a machine raises is a finding of its seed
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        return f"{type(error).__name__}: {error} (in {where})"
    return None
