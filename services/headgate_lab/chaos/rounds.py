"""Which faults strike together, round after round, until each one that was drawn has struck a victim."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from headgate_lab.chaos.faults import FaultKind

SHORT_ROUNDS: Final[tuple[tuple[FaultKind, ...], ...]] = (
    (FaultKind.AGENT_KILLED, FaultKind.OWNER_KILLED),
    (FaultKind.AGENT_FROZEN, FaultKind.AGENT_SILENCED),
    (FaultKind.BROKER_RESTARTED,),
    (FaultKind.DATABASE_FAILED_OVER,),
    (FaultKind.PASSWORD_ROTATED,),
)
"""One of each main sort, for a test of two minutes: agent and owner dead at once; an agent frozen past every lease
while another one is cut off in the middle of its messages, so that the third has every table; the broker restarted,
alone, because every service may lose a lease by it."""

AT_ONCE_WEIGHTS: Final = (6, 3, 1)
"""How often one, two or three faults strike at once."""


class Rounds:
    """The rounds of a campaign. The campaign reports after each strike whether it found a victim."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._missed: set[FaultKind] = set()

    def short(self) -> Iterator[tuple[FaultKind, ...]]:
        """The rounds of SHORT_ROUNDS."""
        yield from SHORT_ROUNDS
        yield from self._again()

    def until(self, is_over: Callable[[], bool]) -> Iterator[tuple[FaultKind, ...]]:
        """Rounds drawn until time is over: every kind once before one comes again."""
        deck: list[FaultKind] = []
        while not is_over():
            count = self._random.choices(range(1, len(AT_ONCE_WEIGHTS) + 1), AT_ONCE_WEIGHTS)[0]
            if len(deck) < count:
                fresh = [kind for kind in FaultKind if kind not in deck]
                self._random.shuffle(fresh)
                deck += fresh
            yield tuple(deck[:count])
            del deck[:count]
        yield from self._again()

    def note(self, kind: FaultKind, *, has_struck: bool) -> None:
        """Record whether a fault found a victim. Once is enough."""
        if has_struck:
            self._missed.discard(kind)
        else:
            self._missed.add(kind)

    @property
    def missed(self) -> tuple[FaultKind, ...]:
        """Kinds that were drawn and have not found a victim since."""
        return tuple(kind for kind in FaultKind if kind in self._missed)

    def _again(self) -> Iterator[tuple[FaultKind, ...]]:
        """What was missed, each alone: another fault of its round may have been at work on the same victim."""
        for kind in self.missed:
            yield (kind,)
