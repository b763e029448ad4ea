"""The command that errors about columns contain names the table as its feed's record does."""

import pytest

from headgate.config.feed import parse_feed
from headgate.records.control import SpanPlan
from headgate.records.stored_names import plan_today
from headgate.tables.evolution import ResyncNeededError, check_replaced


@pytest.mark.parametrize("part", ["", "~0"])
def test_a_table_that_is_called_like_a_slice_is_found_by_the_command(part: str) -> None:
    spec = parse_feed("feed: f\nsource: {topics: [t]}\nsink: {type: postgresql, dsn: dbname=x}")
    plan = plan_today(spec.to_json(), SpanPlan(f"a.b@c=d{part}", "t", "a.b@c=d", {0: 5}))
    with pytest.raises(ResyncNeededError, match=r"`headgate table resync f a\.b@c=d` applies"):
        check_replaced(spec, plan, ["x"])
