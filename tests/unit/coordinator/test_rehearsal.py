"""What an owner would say of a feed, without an owner: the same rules, and nothing kept."""

from msgspec.structs import replace

from headgate.coordinator.core.effects import FeedResolved
from headgate.coordinator.core.feeds.dry_run import would_refuse_create, would_refuse_update
from headgate.coordinator.core.machine import digest, evolve, new_state
from headgate.coordinator.core.state import CoordinatorState
from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState
from headgate.records.keys import AgentKey, FeedKey
from support import build

SPEC = '{"feed": "shop", "source": {"format": "debezium-json"}, "sink": {"type": "postgresql", "dsn": "host=a"}}'
PLANS = (SpanPlan("t1", "db.t1", "t1", {0: 0}),)
SHOP = build.feed_recorded(
    feed_id="0-0", spec=SPEC, spans=PLANS, wanted=WantedState.STOPPED, state=FeedState.STOPPED, sink_id="S"
)


def state(feed: FeedRecorded = SHOP) -> CoordinatorState:
    made = new_state(0)
    evolve(made, FeedKey("shop"), feed, 1)
    return made


def meaning(spec: str = SPEC, plans: tuple[SpanPlan, ...] = PLANS, sink_id: str | None = None) -> FeedResolved:
    return FeedResolved(spec, plans, None, sink_id)


def test_a_feed_is_judged_by_what_is_there_and_nothing_of_it_stays() -> None:
    there = state()
    before = digest(there)
    assert "feed 'shop' already exists" in str(would_refuse_create(there, "shop", meaning()))
    assert "t1 is already written by feed 'shop': a table" in str(would_refuse_create(there, "new", meaning()))
    elsewhere = meaning(SPEC.replace("host=a", "host=b"))
    assert would_refuse_create(there, "new", elsewhere) is None
    assert would_refuse_create(there, "new", meaning(plans=())) is not None
    assert digest(there) == before
    assert there.term is None


def test_what_the_log_cannot_say_yet_is_said() -> None:
    ending = FeedResolved(SPEC.replace("host=a", "host=b"), PLANS, target_ts=7)
    there = state()
    assert "waits for the upgrade" in str(would_refuse_create(there, "new", ending))
    assert "a coordinator, or for a few seconds" in str(would_refuse_create(there, "new", ending))
    for agent, schema_version in (("old", 1), ("new", 2), ("older", 1)):
        said = build.agent_announced(version="v", schema_version=schema_version, capacity_spans=4)
        evolve(there, AgentKey(agent, "s"), said, 2)
    assert "waits for the upgrade of agents old, older: " in str(would_refuse_create(there, "new", ending))
    there.level = 2
    assert would_refuse_create(there, "new", ending) is None


def test_another_address_of_the_same_sink_is_the_same_sink() -> None:
    alias = SPEC.replace("host=a", "host=b")
    assert "another address of the same database" in str(
        would_refuse_create(state(), "new", meaning(alias, sink_id="S"))
    )
    assert would_refuse_create(state(), "new", meaning(alias, sink_id="T")) is None
    unknown = state(replace(SHOP, sink_id=None))
    assert would_refuse_create(unknown, "new", meaning(alias)) is None, "two that cannot tell are not one"


def test_an_update_is_judged_as_the_real_one() -> None:
    assert would_refuse_update(state(), "shop", meaning()) is None
    assert "feed 'new' does not exist" in str(would_refuse_update(state(), "new", meaning()))
    running = state(replace(SHOP, wanted=WantedState.RUNNING, state=FeedState.NORMAL))
    assert would_refuse_update(running, "shop", meaning()) is None, "the command pauses it"
    assert "sink.dsn cannot be changed" in str(would_refuse_update(state(), "shop", meaning(SPEC.replace("=a", "=b"))))
    left = meaning(plans=(SpanPlan("t2", "db.t2", "t2", {0: 0}),))
    assert "table t1 from topic db.t1 would leave" in str(would_refuse_update(state(), "shop", left))


def test_a_feed_of_an_older_version_keeps_a_table_that_is_called_like_a_slice() -> None:
    there = state(replace(SHOP, spans=(SpanPlan("s.o@t=1", "db.t1", "s.o@t=1", {0: 0}),)))
    whole = (SpanPlan('s."o@t=1"', "db.t1", 's."o@t=1"', {0: 0}),)
    assert would_refuse_update(there, "shop", meaning(plans=whole)) is None
    assert "already written by feed 'shop'" in str(would_refuse_create(there, "new", meaning(plans=whole)))
    with_into = SPEC[:-1] + ', "tables": {"*.x": {"into": {"table": "s.x"}}}}'
    assert "stored under a name that is a slice's" in str(
        would_refuse_update(there, "shop", meaning(with_into, plans=whole))
    )
