"""Breadth first over every state within bounds; afterwards, whether each of them can still come to a good end.

Safety (guarantees 1, 3 and 4) is judged by the world at every step. Guarantee 2 is judged once all states are known:
from each of them, with no further fault and no further command, a state must be reachable in which every table is
replicated to its end, or sealed as was asked.
"""

from array import array
from collections.abc import Callable

import msgspec

from headgate_lab.simulation.exhaustive.bounds import Frame, SearchBounds
from headgate_lab.simulation.exhaustive.world import StateSpace
from headgate_lab.simulation.sink_audit import Violation

SAY_EVERY: int = 100_000


class Counterexample(msgspec.Struct, frozen=True):
    """A broken guarantee, and the shortest way to it, a label per step."""

    message: str
    path: tuple[str, ...]


class Result(msgspec.Struct, frozen=True):
    """``depth`` steps were taken from the first state; ``is_complete`` if no state beyond them was left out."""

    bounds: SearchBounds
    states: int
    steps: int
    depth: int
    is_complete: bool
    good: int
    parts: dict[str, int]
    finding: Counterexample | None


class _Graph:
    """States in the order they were found, how each was found, and the steps that need no input from outside."""

    def __init__(self, first: Frame) -> None:
        self.numbers: dict[Frame, int] = {first: 0}
        self.parents = array("q", [-1])
        self.labels: list[str] = [""]
        self.inner_from = array("q")
        self.inner_to = array("q")

    def path(self, number: int, last: str | None = None) -> tuple[str, ...]:
        labels = [] if last is None else [last]
        while number > 0:
            labels.append(self.labels[number])
            number = self.parents[number]
        return tuple(reversed(labels))


def search(
    bounds: SearchBounds,
    *,
    depth: int | None = None,
    states_max: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Every state within ``bounds``, at most ``depth`` steps away, until ``states_max`` are known. Raises nothing."""
    world = StateSpace(bounds)
    graph = _Graph(world.first())
    frontier, level, steps = list(graph.numbers), 0, 0
    finding: Counterexample | None = None
    good = bytearray()
    while frontier and (depth is None or level < depth) and (states_max is None or len(graph.numbers) < states_max):
        found: list[Frame] = []
        for frame in frontier:
            number = graph.numbers[frame]
            label = ""
            try:
                for label, is_outer, after in world.steps(frame):
                    steps += 1
                    place = graph.numbers.setdefault(after, len(graph.parents))
                    if place == len(graph.parents):
                        graph.parents.append(number)
                        graph.labels.append(label)
                        found.append(after)
                        if place % SAY_EVERY == 0:
                            say(f"{place} states at depth {level + 1}")
                    if not is_outer and place != number:
                        graph.inner_from.append(number)
                        graph.inner_to.append(place)
            except Violation as broken:
                finding = Counterexample(str(broken), graph.path(number, f"(after {label or 'nothing else'})"))
                break
        if finding is not None:
            break
        frontier, level = found, level + 1
    if finding is None:
        good = _good(world, graph)
        if not frontier and 0 in good:
            number = good.index(0)
            finding = Counterexample("2: no good end can be reached from here", graph.path(number))
    parts = {"coordinator": len(world.parts.logs), "session": len(world.parts.sessions), "sink": len(world.parts.sinks)}
    return Result(
        bounds,
        len(graph.numbers),
        steps,
        level,
        not frontier,
        sum(good),
        parts,
        finding,
    )


def _good(world: StateSpace, graph: _Graph) -> bytearray:
    """One byte per state: 1 if a good end can be reached from it by inner steps alone."""
    good = bytearray(world.is_good(frame) for frame in graph.numbers)
    changed = True
    while changed:
        changed = False
        for place in range(len(graph.inner_from) - 1, -1, -1):
            if good[graph.inner_to[place]] and not good[graph.inner_from[place]]:
                good[graph.inner_from[place]] = 1
                changed = True
    return good
