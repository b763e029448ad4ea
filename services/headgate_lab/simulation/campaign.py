"""Many seeds, one after the other: what they found, what they reached, how fast, and the least form of a finding."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from headgate_lab.simulation.marks import MARKS_SEEDS_MIN, missing
from headgate_lab.simulation.profile import Profile
from headgate_lab.simulation.sink_audit import Violation
from headgate_lab.simulation.world import World

TICKS: Final = 400
"""Length of the safety phase: long enough for several leases, moves and owners (40-200 s of the world's clock)."""

FRAMES_SHOWN: Final = 3


class SeedFailure(msgspec.Struct, frozen=True):
    """A guarantee that did not hold, or a machine that raised: ``at`` seconds of the world's clock."""

    seed: int
    what: str
    at: float


class Played(msgspec.Struct, frozen=True):
    """One history: ``digest`` is of everything visible in it, the same for the same seed and version."""

    profile: Profile
    finding: SeedFailure | None
    steps: int
    digest: str
    marks: dict[str, int]
    trace: tuple[str, ...] = ()


class Campaign(msgspec.Struct):
    """What is known after some seeds."""

    seeds: int = 0
    steps: int = 0
    findings: list[SeedFailure] = msgspec.field(default_factory=list)
    marks: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, played: Played) -> None:
        """One more history."""
        self.seeds += 1
        self.steps += played.steps
        self.marks.update(played.marks)
        if played.finding is not None:
            self.findings.append(played.finding)

    @property
    def marks_missing(self) -> list[str]:
        """Rare states that no seed has reached."""
        return missing(self.marks)

    @property
    def holds(self) -> bool:
        """No finding, and, if there were enough seeds to ask for it, every mark reached."""
        return not self.findings and (self.seeds < MARKS_SEEDS_MIN or not self.marks_missing)


def play(profile: Profile, *, trace: bool = False) -> Played:
    """One history, to its end or its first finding."""
    world = World(profile)
    if trace:
        world.trace = []
    what = None
    try:
        world.run()
    except Violation as violation:
        what = f"violation of guarantee {violation}"
    except Exception as error:  # noqa: BLE001 - whatever a machine raises is a finding of its seed
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        what = f"{type(error).__name__}: {error} (in {where})"
    finding = None if what is None else SeedFailure(profile.seed, what, round(world.clock, 2))
    return Played(profile, finding, world.steps, world.digest(), dict(world.marks), tuple(world.trace or ()))


def shrink(profile: Profile, tell: Callable[[str], None] = lambda _text: None) -> Played | None:
    """The finding of this world with as few kinds of fault and as short as it still comes; None if it has none.

    A kind taken away changes every later draw, so each attempt is another history: what counts is the same guarantee.
    """
    least = play(profile)
    if least.finding is None:
        return None
    wanted = _kind(least.finding)
    for attempt in _simpler(profile):
        merged = _keep(attempt, least.profile)
        if merged == least.profile:
            continue
        played = play(merged)
        if played.finding is not None and _kind(played.finding) == wanted:
            tell(f"still: {', '.join(sorted(merged.rates)) or 'no faults'}; {merged.ticks} ticks")
            least = played
    return play(least.profile, trace=True)


def _kind(finding: SeedFailure) -> str:
    return finding.what.partition(":")[0]


def _simpler(profile: Profile) -> Iterator[dict[str, object]]:
    """Changes to try, one at a time: without a kind of fault, a smaller world, a shorter history."""
    for kind in sorted(profile.rates):
        yield {"without": kind}
    for name in ("feeds", "tables", "partitions", "shards", "coordinators"):
        yield {name: 1}
    for share in (2, 2, 2, 2):
        yield {"shorter": share}


def _keep(change: dict[str, object], least: Profile) -> Profile:
    if "without" in change:
        rates = {kind: rate for kind, rate in least.rates.items() if kind != change["without"]}
        return msgspec.structs.replace(least, rates=rates)
    if "shorter" in change:
        return msgspec.structs.replace(least, ticks=max(1, least.ticks // 2))
    return msgspec.structs.replace(least, **change)
