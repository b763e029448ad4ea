"""Ranking against the obvious model: a dictionary, sorted each time."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.coordinator.core.ranking import Ranking

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 5)), max_size=120)


@given(STEPS)
def test_order_and_membership_are_those_of_a_sorted_dictionary(steps: list[tuple[bool, int, int]]) -> None:
    ranking: Ranking[int] = Ranking()
    model: dict[int, int] = {}
    for is_put, member, rank in steps:
        if is_put:
            ranking.put(member, rank)
            model[member] = rank
        else:
            ranking.discard(member)
            model.pop(member, None)
        expected = sorted(model, key=lambda m: (model[m], m))
        assert list(ranking.in_order()) == expected
        assert ranking.first() == (expected[0] if expected else None)
        assert len(ranking) == len(model)
        assert all(ranking.rank(m) == model.get(m) and (m in ranking) == (m in model) for m in range(31))
