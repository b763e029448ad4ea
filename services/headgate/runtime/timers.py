"""The timers of one term: names with deadlines, returned when they expire.

A timer belongs to the term that set it and dies with it. Cancelled and replaced timers stay in the heap until they
come to its top, so setting and cancelling cost O(log n) and nothing is ever searched.
"""

import heapq


class Timers:
    """Deadlines in monotonic seconds, one per name."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._current: dict[str, int] = {}
        self._number = 0

    def set(self, name: str, deadline: float) -> None:
        """Fire ``name`` at ``deadline``; an earlier timer of that name is forgotten."""
        self._number += 1
        self._current[name] = self._number
        heapq.heappush(self._heap, (deadline, self._number, name))

    def cancel(self, name: str) -> None:
        """Forget a timer; not an error if it is not set."""
        self._current.pop(name, None)

    def mark(self) -> int:
        """The number of the latest timer set: what is set afterwards has a higher one."""
        return self._number

    def take_due(self, now: float, mark: int) -> str | None:
        """Take one timer that has run out and was set no later than ``mark``; None if there is none.

        The mark keeps a timer of no delay, set in answer to a timer, from holding a turn without limit.
        """
        deadline = self.next_deadline()
        if deadline is None or deadline > now or self._heap[0][1] > mark:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._current[name]
        return name

    def next_deadline(self) -> float | None:
        """The earliest deadline of a timer still set."""
        while self._heap and self._current.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
