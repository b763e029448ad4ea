"""Whatever sinks, registries and brokers say through effects and sessions: the owner's records can be written."""

from typing import Any

import pytest
from msgspec.structs import replace

from headgate.coordinator.core.effects import FeedRefused, FeedResolved, StartResolved, TablesDiscovered
from headgate.records.control import FeedRecorded, OutcomeStatus, RequestSettled, SpanPlan
from headgate.records.fitting import TEXT_LENGTH_MAX
from headgate.records.keys import FeedKey, OutcomeKey
from scenarios.runner import World, planned
from support.codec import decode, encode

ODD_TEXTS = ("half \ud800 of a pair", "long " * 5_000, "\udfff" * 9_000)


def world_with_feed() -> World:
    world = World()
    run(world, "owner start o1", "agent join a1", "request create r1 shop tables=t1", "status a1 shop/t1 replicating")
    return world


def run(world: World, *lines: str) -> None:
    for line in lines:
        world.run(line)


def written(world: World) -> dict[Any, Any]:
    """Every committed fact goes through the codec; the newest of each key."""
    newest = {}
    for facts in world.facts:
        for fact in facts:
            assert decode(fact.key.topic, *encode(fact)) == (fact.key, fact.value)
            newest[fact.key] = fact.value
    return newest


def finish(world: World, result: Any) -> None:
    """Give this result to every effect that waits."""
    effects = world.take_effects()
    assert effects
    for owner, effect in effects:
        owner.role.finish(effect, result)
    world.run("advance 1s")


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_reasons_notices_and_errors(text: str) -> None:
    world = world_with_feed()
    world.run("effects hold")
    world.run("advance 11s")
    finish(world, TablesDiscovered(notices=(text, "fine")))
    feed = written(world)[FeedKey("shop")]
    assert isinstance(feed, FeedRecorded)
    assert len(feed.notices[0]) <= TEXT_LENGTH_MAX
    before = len(world.facts)
    world.run("advance 11s")
    finish(world, TablesDiscovered(notices=(text, "fine")))
    facts = [fact for batch in world.facts[before:] for fact in batch]
    assert not any(isinstance(fact.key, FeedKey) for fact in facts), "what was said is not said again"

    world.run("request create r2 more tables=t2")
    finish(world, FeedRefused(text))
    outcome = written(world)[OutcomeKey("r2")]
    assert isinstance(outcome, RequestSettled)
    assert outcome.status is OutcomeStatus.REFUSED
    world.check()


def test_warnings_about_a_table_that_joined_stay_until_the_feed_is_resumed() -> None:
    world = world_with_feed()
    world.run("effects hold")
    warning = "warning: topic db.z is compacted"

    def notices() -> tuple[str, ...]:
        feed = written(world)[FeedKey("shop")]
        assert isinstance(feed, FeedRecorded)
        return feed.notices

    world.run("advance 11s")
    finish(world, TablesDiscovered(notices=("t9 is left out",), warnings=("warning: nobody joined",)))
    assert notices() == ("t9 is left out",)
    world.run("advance 11s")
    joined = SpanPlan("z", "db.z", "z", {0: 0})
    finish(world, TablesDiscovered((joined,), notices=("t9 is left out",), warnings=(warning,)))
    assert notices() == ("t9 is left out", warning)
    world.run("advance 11s")
    finish(world, TablesDiscovered())
    assert notices() == (warning,)
    world.run("request pause r7 shop")
    world.run("request resume r8 shop")
    world.run("advance 1s")
    assert notices() == ()


ODD_PLANS = (
    SpanPlan("z\ud800", "db.z", "z\ud800", {0: 0}),
    SpanPlan("z", "db.z\ud800", "z", {0: 0}),
    SpanPlan("z", "db.z", "z", {0: 2**63}),
    SpanPlan("z", "db.z", "z", {0: -1}),
)


@pytest.mark.parametrize("plan", ODD_PLANS)
def test_a_feed_with_names_or_offsets_that_nothing_can_write_is_refused(plan: SpanPlan) -> None:
    world = world_with_feed()
    world.run("effects hold")
    world.run("request create r2 more tables=t2")
    finish(world, FeedResolved('{"sink": {"type": "postgresql", "dsn": "target"}}', (plan,)))
    outcome = written(world)[OutcomeKey("r2")]
    assert outcome.status is OutcomeStatus.REFUSED
    assert FeedKey("more") not in written(world)
    world.run("advance 11s")
    finish(world, TablesDiscovered((plan,)))
    feed = written(world)[FeedKey("shop")]
    assert [kept.span for kept in feed.spans] == ["t1"]
    assert feed.notices
    world.check()


@pytest.mark.parametrize("given", [{"spec": '{"a": "\ud800"}'}, {"sink_id": "\ud800"}, {"target_ts": 2**64}])
def test_a_feed_with_a_text_or_target_that_nothing_can_write_is_refused(given: dict[str, Any]) -> None:
    world = world_with_feed()
    world.run("effects hold")
    world.run("request create r2 more tables=t2")
    made = FeedResolved('{"sink": {"type": "postgresql", "dsn": "target"}}', planned("t2"))
    finish(world, replace(made, **given))
    assert written(world)[OutcomeKey("r2")].status is OutcomeStatus.REFUSED


def test_a_feed_does_not_go_on_from_an_offset_that_no_topic_has() -> None:
    world = world_with_feed()
    run(world, "request pause p1 shop", "status a1 shop/t1 stopped pos=3", "effects hold")
    run(world, "request resume p2 shop start=9")
    finish(world, StartResolved((replace(planned("t1")[0], start={0: 2**64}),)))
    outcome = written(world)[OutcomeKey("p2")]
    assert outcome.status is OutcomeStatus.REFUSED
    assert str(2**64) in outcome.reason
