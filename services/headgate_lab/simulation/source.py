"""The source topics of the world: only their ends grow, and, under retention, their beginnings too.

A reader below the beginning can never read what it has not applied. That must be an error which a person sees; to
continue at the beginning instead would be a gap in the table (the sink's audit, guarantee 6, would show it).
"""

from typing import TYPE_CHECKING, Final

from headgate_lab.simulation.sink_audit import end_of

if TYPE_CHECKING:
    from headgate_lab.simulation.world import World

EVENTS_AT_ONCE: Final = 3


class SimulatedSource:
    """(topic, partition) → from where, and up to where, changes can be read."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._ends: dict[tuple[str, int], int] = {}
        self._begins: dict[tuple[str, int], int] = {}

    def end(self, topic: str, partition: int) -> int:
        """How far it has been written."""
        return self._ends.get((topic, partition), 0)

    def begin(self, topic: str, partition: int) -> int:
        """The first change that is still there."""
        return self._begins.get((topic, partition), 0)

    def grow(self) -> None:
        """What is changed in one tick; after the faults only what feeds with a target need to come to it."""
        profile, chance = self._world.profile, self._world.chance
        if self._world.faults.stopped:
            self._pass_targets()
        elif chance.random() < profile.event_rate:
            feed = chance.randint(1, profile.feeds)
            for table in range(1, profile.tables + 1):
                topic, partition = f"db.f{feed}t{table}", chance.randrange(profile.partitions)
                self._ends[topic, partition] = self.end(topic, partition) + EVENTS_AT_ONCE

    def expire(self) -> None:
        """Retention deletes some of the oldest changes of one partition, or all of them."""
        if self._ends:
            place = self._world.chance.choice(sorted(self._ends))
            self._begins[place] = self._world.chance.randint(self.begin(*place), self._ends[place])

    def _pass_targets(self) -> None:
        """A feed that is to end does so when its source has gone beyond its target."""
        for _, state in sorted(self._world.log_audit.states.items()):
            for _, feed in sorted(state.feeds.items()):
                if feed.target_ts is None:
                    continue
                for plan in feed.spans:
                    for partition, start in sorted(plan.start.items()):
                        least = max(start, end_of(feed.target_ts)) + 1
                        self._ends[plan.topic, partition] = max(self.end(plan.topic, partition), least)
