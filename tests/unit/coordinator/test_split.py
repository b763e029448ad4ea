"""When a table is divided by itself, when it is made whole, and when neither: the band between."""

import pytest

from headgate.coordinator.core.loads import Loads
from headgate.coordinator.schedulers.balance import BYTES_PER_S_MIN
from headgate.coordinator.schedulers.contract import Heat, TableLoad
from headgate.coordinator.schedulers.split import COLD_ROUNDS_MIN, HOT_ROUNDS_MIN, choose, heat

MB = 1e6


def load(rate: float, *, parts: int = 1, partitions: int = 8, table: str = "t") -> TableLoad:
    return TableLoad("f", table, rate, parts, partitions)


@pytest.mark.parametrize(
    ("table", "share", "verdict"),
    [
        (load(4 * MB), 2 * MB, Heat.HOT),
        (load(2.9 * MB), 2 * MB, Heat.EVEN),
        (load(4 * MB, partitions=1), 2 * MB, Heat.EVEN),
        (load(0.9 * BYTES_PER_S_MIN), 0.1 * MB, Heat.EVEN),
        (load(4 * MB, parts=2), 2 * MB, Heat.EVEN),
        (load(1.1 * MB, parts=2), 2 * MB, Heat.EVEN),
        (load(0.9 * MB, parts=2), 2 * MB, Heat.COLD),
        (load(0.0, parts=2), 0.0, Heat.COLD),
    ],
)
def test_between_hot_and_cold_lies_a_band(table: TableLoad, share: float, verdict: Heat) -> None:
    assert heat(table, share) is verdict


def test_only_what_has_long_been_hot_is_divided_and_only_what_has_longer_been_cold_is_made_whole() -> None:
    loads = {("f", "t"): load(6 * MB), ("f", "u"): load(0.1 * MB, parts=2, table="u")}
    early = {("f", "t"): (Heat.HOT, HOT_ROUNDS_MIN - 1), ("f", "u"): (Heat.COLD, COLD_ROUNDS_MIN - 1)}
    due = {("f", "t"): (Heat.HOT, HOT_ROUNDS_MIN), ("f", "u"): (Heat.COLD, COLD_ROUNDS_MIN)}
    assert choose(loads, early, agents=3) == []
    assert [(table.table, parts) for table, parts in choose(loads, due, agents=3)] == [("t", 3), ("u", 1)]


@pytest.mark.parametrize(("partitions", "agents", "parts"), [(8, 4, 4), (2, 4, 2), (8, 2, 2)])
def test_into_as_many_parts_as_there_are_partitions_agents_and_shares(partitions: int, agents: int, parts: int) -> None:
    loads = {("f", "t"): load(20 * MB, partitions=partitions)}
    ((_, chosen),) = choose(loads, {("f", "t"): (Heat.HOT, HOT_ROUNDS_MIN)}, agents=agents)
    assert chosen == parts


def test_a_round_that_is_otherwise_begins_the_count_anew() -> None:
    loads = Loads()
    place = ("f", "t")
    assert [loads.note_heat({place: what})[place] for what in (Heat.HOT, Heat.HOT, Heat.EVEN, Heat.HOT)] == [
        (Heat.HOT, 1),
        (Heat.HOT, 2),
        (Heat.EVEN, 1),
        (Heat.HOT, 1),
    ]
    assert loads.note_heat({}) == {}
