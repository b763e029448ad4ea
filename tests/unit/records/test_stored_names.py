"""Names of tables in records that older versions have written."""

import msgspec
import pytest

from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState
from headgate.records.stored_names import has_slices, plan_today, plans_today, table_today

OLD = '{"feed": "f", "tables": {"a.*": {"table": "x"}}}'
NEW = '{"feed": "f", "tables": {"a.*": {"table": "x"}, "b.o": {"into": {"table": "o", "discriminator": {"t": "1"}}}}}'


@pytest.mark.parametrize(
    ("spec", "table", "today"),
    [
        (OLD, "b.o", "b.o"),
        (OLD, '"b"."o"', "b.o"),
        (OLD, "b.o@t=1", 'b."o@t=1"'),
        (OLD, 'b."o@t=1"', 'b."o@t=1"'),
        (OLD, "o@t=1.x", '"o@t=1".x'),
        (NEW, "b.o@t=1", "b.o@t=1"),
        (NEW, 'b."o@t=1"', 'b."o@t=1"'),
        ("no JSON", "b.o@t=1", 'b."o@t=1"'),
    ],
)
def test_a_name_is_a_slices_only_in_a_feed_that_has_slices(spec: str, table: str, today: str) -> None:
    assert table_today(spec, table) == today
    assert table_today(spec, today) == today


def test_spans_keep_their_names_which_are_keys_of_other_records() -> None:
    plan = SpanPlan("b.o@t=1~0", "t", "b.o@t=1", {0: 5})
    assert plan_today(OLD, plan) == SpanPlan("b.o@t=1~0", "t", 'b."o@t=1"', {0: 5})
    assert plan_today(NEW, plan) == plan
    running = (WantedState.RUNNING, FeedState.NORMAL, None, None, None, 0)
    assert plans_today(FeedRecorded("0-1", 0, 0, OLD, (plan,), *running)) == (plan_today(OLD, plan),)


def test_a_feed_without_options_of_tables_has_no_slices() -> None:
    specs = (OLD, NEW, "{}", msgspec.json.encode({"tables": {"a.b": {"into": None}}}).decode())
    assert [has_slices(spec) for spec in specs] == [False, True, False, False]
