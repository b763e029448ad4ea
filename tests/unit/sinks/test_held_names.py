"""What claims hold at a sink, and the ends of feeds: so that those that could meet do, and none wait for each other."""

from itertools import combinations
from typing import Final

from headgate.sinks.relational.progress import held_names

NAMES: Final = ('a."t@x=1"', 'a."t@x=1"@y=2', "a.t@x=1", "a.t@x=2", "a.t")


def test_two_that_hold_the_same_names_hold_them_in_one_order() -> None:
    holders = [held_names(name) for name in NAMES] + [held_names(*pair) for pair in combinations(NAMES, 2)]
    for one, other in combinations(holders, 2):
        assert [name for name in one if name in other] == [name for name in other if name in one]


def test_the_end_of_a_feed_meets_a_claim_of_the_name_that_an_older_version_stored() -> None:
    assert set(held_names("public.a@b=c")) & set(held_names('public."a@b=c"'))
    assert set(held_names('public."orders"')) & set(held_names("public.orders"))


def test_slices_of_one_table_meet_and_their_own_names_come_first() -> None:
    assert held_names("a.t@x=1") == ["a.t@x=1", "a.t"]
    assert held_names('a."t@x=1"@y=2') == ['a."t@x=1"@y=2', "a.t@x=1", 'a."t@x=1"']
