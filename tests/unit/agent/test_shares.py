"""How a batch is divided among tasks: evenly, and as the batch before if that is even enough."""

from headgate.agent.lane.shares import UNEVEN_ROWS, Portion, Shares
from headgate.sources.reader import Reading


def portions(rows: dict[str, int]) -> list[Portion]:
    return [Portion((Reading(topic, 0, 0, 0), Reading(topic, 1, 0, 0)), count) for topic, count in rows.items()]


def topics(shares: list[list[Reading]]) -> list[set[str]]:
    return [{reading.topic for reading in share} for share in shares]


def test_the_heaviest_are_dealt_out_first_and_a_portion_stays_whole() -> None:
    shares = Shares().divide(portions({"a": 10, "b": 900, "c": 500, "d": 390}), 2)
    assert topics(shares) == [{"b"}, {"c", "d", "a"}]
    assert [len(share) for share in shares] == [2, 6]


def test_no_task_is_without_readings() -> None:
    assert len(Shares().divide(portions({"a": 5}), 4)) == 1
    assert [len(share) for share in Shares().divide(portions({"a": 5, "b": 0, "c": 0}), 3)] == [2, 2, 2]


def test_loads_that_change_a_little_leave_all_where_it_is() -> None:
    shares = Shares()
    before = topics(shares.divide(portions({"a": 3, "b": 1, "c": 2, "d": 0}), 2))
    again = topics(shares.divide(portions({"a": 0, "b": UNEVEN_ROWS, "c": 1, "d": 5}), 2))
    assert again == before


def test_a_newcomer_goes_where_least_is_and_moves_nobody() -> None:
    shares = Shares()
    before = topics(shares.divide(portions({"a": 50, "b": 30}), 2))
    after = topics(shares.divide(portions({"a": 50, "b": 30, "c": 40}), 2))
    assert after == [before[0], before[1] | {"c"}]


def test_a_share_that_all_would_wait_for_is_dealt_out_again() -> None:
    shares = Shares()
    before = topics(shares.divide(portions({"a": 1, "b": 1, "c": 1, "d": 1}), 2))
    busy = dict.fromkeys(sorted(before[0]), 10 * UNEVEN_ROWS)
    quiet = dict.fromkeys(sorted(before[1]), 1)
    after = topics(shares.divide(portions(busy | quiet), 2))
    assert [len(set(busy) & share) for share in after] == [1, 1]


def test_what_cannot_be_divided_better_stays() -> None:
    shares = Shares()
    before = topics(shares.divide(portions({"a": 90_000, "b": 1, "c": 1}), 2))
    assert topics(shares.divide(portions({"a": 90_000, "b": 2, "c": 0}), 2)) == before


def test_when_a_share_has_lost_all_its_own_the_rest_is_dealt_out_again() -> None:
    shares = Shares()
    before = topics(shares.divide(portions(dict.fromkeys("abcd", 0)), 2))
    left = portions(dict.fromkeys(sorted(before[0]), 0))
    assert [len(share) for share in shares.divide(left, 2)] == [2, 2]
