"""Which version of a lake table has no change at or behind some offsets."""

import json

from headgate.sinks.lake.history import COPY, COPY_CONTINUES, COPY_ENDED, at_positions, reached
from headgate.sinks.lake.tables import POSITIONS, Version

TOPIC = "shop.public.orders"


def version(number: int, positions: dict[int, int] | None = None, **more: str) -> Version:
    entries = {} if positions is None else {POSITIONS: json.dumps({TOPIC: positions})}
    return Version(str(number), number * 1000, entries | {f"headgate.{name}": text for name, text in more.items()})


HISTORY = reached(
    [version(0), version(1, {0: 5}), version(2, {1: 3}), version(3), version(4, {0: 9}), version(5, {0: 12, 1: 8})],
    TOPIC,
)


def test_a_version_has_the_positions_of_all_partitions_that_were_committed_until_then() -> None:
    assert [(each.version.name, each.positions) for each in HISTORY] == [
        ("1", {0: 5}),
        ("2", {0: 5, 1: 3}),
        ("3", {0: 5, 1: 3}),
        ("4", {0: 9, 1: 3}),
        ("5", {0: 12, 1: 8}),
    ]
    assert reached([version(1, {0: 5})], "another") == []


def test_the_newest_version_without_later_changes_is_found_with_the_one_behind_it() -> None:
    def names(ends: dict[int, int]) -> tuple[str, str | None] | None:
        at = at_positions(HISTORY, ends)
        return None if at is None else (at.found.version.name, None if at.later is None else at.later.version.name)

    assert names({0: 9, 1: 8}) == ("4", "5")
    assert names({0: 8, 1: 3}) == ("3", "4")
    assert names({0: 12, 1: 8}) == ("5", None)
    assert names({0: 100, 1: 2}) == ("1", "2")
    assert names({0: 4, 1: 8}) is None


def test_a_version_within_a_copy_is_known() -> None:
    found = reached(
        [
            version(1, {0: 5}),
            version(2, {0: 5}, copy=COPY_CONTINUES),
            version(3, {0: 6}),
            version(4, {0: 6}, copy=COPY_ENDED),
        ],
        TOPIC,
    )
    assert [each.is_copying for each in found] == [False, True, True, False]
    assert COPY == "headgate.copy"
