"""When a copy may get its unique keys: against every history of two rows and a value that goes from one to the other.

The copy has rows of different moments, because each row is read at its own time. The feed then applies every change
since the first read again. The table never has the value twice; the copy may, until the feed has come past what was
read.
"""

import itertools
from collections.abc import Iterator

Rows = dict[int, int]
"""row → value; the value must not be in two rows."""

ROWS, VALUES = (1, 2), (0, 1, 2)
CHANGES = 4


def histories() -> Iterator[list[Rows]]:
    """The table as it was after 0, 1, … changes of one row each. A value is in one row at most."""
    allowed = [dict(zip(ROWS, values, strict=True)) for values in itertools.permutations(VALUES, len(ROWS))]

    def grow(so_far: list[Rows]) -> Iterator[list[Rows]]:
        if len(so_far) == CHANGES + 1:
            yield so_far
            return
        for rows in allowed:
            if sum(rows[row] != so_far[-1][row] for row in ROWS) == 1:
                yield from grow([*so_far, rows])

    for rows in allowed:
        yield from grow([rows])


def is_twice(copy: Rows) -> bool:
    return len(set(copy.values())) < len(copy)


def broken(states: list[Rows], *, reach: bool) -> bool:
    """Whether some order of reads breaks a key that is added when the feed is (``reach``) behind the last read."""
    for read in itertools.product(range(len(states)), repeat=len(ROWS)):
        copy = {row: states[place][row] for row, place in zip(ROWS, read, strict=True)}
        added = max(read) if reach else 0
        for place, rows in enumerate(states):
            if place > 0:
                copy |= {row: rows[row] for row in ROWS if rows[row] != states[place - 1][row]}
            if place >= added and is_twice(copy):
                return True
    return False


def test_behind_the_last_read_a_key_is_never_broken() -> None:
    assert not any(broken(states, reach=True) for states in histories())


def test_before_that_it_would_be() -> None:
    assert any(broken(states, reach=False) for states in histories())


def sticks(states: list[Rows]) -> bool:
    """Whether two feeds, one for each row, each at its own pace, come to where neither has room for a change."""
    changes = [
        next((row, rows[row]) for row in ROWS if rows[row] != states[place - 1][row])
        for place, rows in enumerate(states)
        if place > 0
    ]
    lanes = [[change for change in changes if change[0] == row] for row in ROWS]
    open_places = [((0, 0), tuple(states[0][row] for row in ROWS))]
    while open_places:
        at, copy = open_places.pop()
        following = []
        for lane in range(len(ROWS)):
            if at[lane] < len(lanes[lane]):
                value = lanes[lane][at[lane]][1]
                if value != copy[1 - lane]:
                    moved = tuple(place + (number == lane) for number, place in enumerate(at))
                    following.append((moved, tuple(value if n == lane else old for n, old in enumerate(copy))))
        if not following and any(at[lane] < len(lanes[lane]) for lane in range(len(ROWS))):
            return True
        open_places += following  # type: ignore[arg-type]
    return False


def test_two_partitions_may_come_to_where_neither_has_room() -> None:
    """So a topic of several partitions is refused together with a unique key."""
    assert any(sticks(states) for states in histories())
