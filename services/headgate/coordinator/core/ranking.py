"""A set that always knows its least member: a binary heap whose entries can be found and moved.

The coordinator asks "which span next?" and "which span holds the checkpoint?" at every event, over up to 131 072
spans. Sorting would cost all of them each time. Here one change costs O(log n), the least member O(1), and
walking the first k members in order O(k log k), with no rubbish left behind to clean up in one long pause.
"""

import heapq
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar


class _Sortable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


MemberT = TypeVar("MemberT", bound=_Sortable)


class Ranking(Generic[MemberT]):
    """Members with a rank, in the order (rank, member). Ranks of one ranking must be comparable."""

    __slots__ = ("_entries", "_places")

    def __init__(self) -> None:
        self._entries: list[tuple[Any, MemberT]] = []
        self._places: dict[MemberT, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, member: object) -> bool:
        return member in self._places

    def rank(self, member: MemberT) -> Any:
        """The member's rank; None if it is not here."""
        place = self._places.get(member)
        return None if place is None else self._entries[place][0]

    def put(self, member: MemberT, rank: Any = 0) -> None:
        """Add a member, or give it another rank."""
        place = self._places.get(member)
        if place is None:
            place = len(self._entries)
            self._entries.append((rank, member))
            self._places[member] = place
        elif self._entries[place][0] == rank:
            return
        else:
            self._entries[place] = (rank, member)
        self._sink(self._rise(place))

    def discard(self, member: MemberT) -> None:
        """Remove a member, if it is here."""
        place = self._places.pop(member, None)
        if place is None:
            return
        last = self._entries.pop()
        if place < len(self._entries):
            self._entries[place] = last
            self._places[last[1]] = place
            self._sink(self._rise(place))

    def first(self) -> MemberT | None:
        """The least member, None if there is none."""
        return self._entries[0][1] if self._entries else None

    def in_order(self) -> Iterator[MemberT]:
        """Members from the least on; take only as many as needed, and change nothing in the meantime."""
        entries = self._entries
        if not entries:
            return
        frontier = [(entries[0], 0)]
        while frontier:
            entry, place = heapq.heappop(frontier)
            yield entry[1]
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(entries):
                    heapq.heappush(frontier, (entries[child], child))

    def _rise(self, place: int) -> int:
        entries, places = self._entries, self._places
        entry = entries[place]
        while place:
            parent = (place - 1) >> 1
            if not entry < entries[parent]:
                break
            entries[place] = entries[parent]
            places[entries[place][1]] = place
            place = parent
        entries[place] = entry
        places[entry[1]] = place
        return place

    def _sink(self, place: int) -> None:
        entries, places = self._entries, self._places
        entry, end = entries[place], len(entries)
        while (child := 2 * place + 1) < end:
            if child + 1 < end and entries[child + 1] < entries[child]:
                child += 1
            if not entries[child] < entry:
                break
            entries[place] = entries[child]
            places[entries[place][1]] = place
            place = child
        entries[place] = entry
        places[entry[1]] = place
