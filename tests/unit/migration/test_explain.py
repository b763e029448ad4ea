"""What `headgate why` says of a migration: each thing that it waits for, and what to do about it."""

from typing import Any

import pytest
from msgspec.structs import replace

from headgate.migration.core.explain import (
    QUIET_SECONDS,
    Beside,
    FeedTables,
    Hold,
    HoldKind,
    MigrationExplanation,
    explain_migration,
    keeper_of,
    migrations_beside,
)
from headgate.migration.core.feed_names import back_feed, forth_feed
from headgate.migration.core.spec import MigrationSpec, written
from headgate.records.control import OwnerAnnounced
from headgate.records.migration import MigrationRecorded, MigrationState, MigrationStrategy
from headgate.records.migration_standing import (
    AWAITING_CHANGE,
    AWAITING_LOCK,
    AWAITING_TRANSACTIONS,
    CUTTING_OVER,
    READY_TO_CUT_OVER,
    STARTING_FEED,
)
from headgate.records.name_lists import NAMES_SHOWN_MAX
from headgate.records.throttle_reasons import CLEAN_UP, DATABASE, FEED, OPERATOR, REPLICA
from support.migration_records import recorded

NOW_MS = 1_000_000
OWNER = OwnerAnnounced("owner-1", 1, "1", 1, 5.0, NOW_MS)
FEED_NAME = forth_feed("m1")


def spec(**more: Any) -> str:
    given: dict[str, Any] = {"statement": "ALTER TABLE t ADD c int", "database": "shop", "topic": "shop.public.items"}
    return written(MigrationSpec(**(given | {"strategy": MigrationStrategy.ONLINE} | more)))


def migration(text: str = "", **facts: Any) -> MigrationRecorded:
    return recorded(text or spec(), **({"live_ms": NOW_MS, "stage_ms": NOW_MS} | facts))


def explained(record: MigrationRecorded, **others: MigrationRecorded) -> MigrationExplanation:
    return explain_migration({"m1": record, **others}, "m1", OWNER, NOW_MS)


def the_hold(record: MigrationRecorded, **others: MigrationRecorded) -> Hold:
    (found,) = explained(record, **others).reasons
    return found


READY = {"stage": READY_TO_CUT_OVER, "is_ready_to_complete": True, "was_ready": True, "waiting_ms": 5}


@pytest.mark.parametrize(
    ("facts", "wanted", "since_ms", "advice"),
    [
        (
            {"state": MigrationState.AWAITING_APPROVAL, "submitted_by": "ann@a", "added_ms": 7},
            HoldKind.APPROVAL,
            7,
            "headgate migration approve m1",
        ),
        (
            {"state": MigrationState.QUEUED, "launch_postponed": True, "added_ms": 7},
            HoldKind.LAUNCH,
            7,
            "headgate migration launch m1",
        ),
        (
            {"state": MigrationState.QUEUED, "is_immediate": True, "completion_postponed": True, "added_ms": 7},
            HoldKind.COMPLETION,
            7,
            "headgate migration complete m1",
        ),
        ({"state": MigrationState.QUEUED, "added_ms": 7}, HoldKind.TURN, 7, "wait"),
        ({"state": MigrationState.READY, "ready_ms": 8, "added_ms": 7}, HoldKind.TURN, 8, "wait"),
        (
            {"stage": "copying", "throttle_reason": f"{OPERATOR} ratio 1", "throttled_ms": 9},
            HoldKind.THROTTLE,
            9,
            "headgate migration throttle m1 --ratio 0",
        ),
        ({"stage": "copying", "throttle_ratio": 0.5}, HoldKind.THROTTLE, 0, "throttle m1 --ratio 0"),
        ({"throttle_reason": f"{DATABASE} 9 at work", "throttled_ms": 9}, HoldKind.THROTTLE, 9, "sessions"),
        ({"throttle_reason": f"{REPLICA}: 9.0 s behind", "throttled_ms": 9}, HoldKind.THROTTLE, 9, "check the replica"),
        ({"throttle_reason": f"{FEED}shop: t is behind", "throttled_ms": 9}, HoldKind.THROTTLE, 9, "headgate why"),
        ({"throttle_reason": "lost the connection", "throttled_ms": 9}, HoldKind.THROTTLE, 9, "by itself"),
        (
            {
                "stage": AWAITING_LOCK,
                "throttle_reason": "locked (try 1 of 11)",
                "throttled_ms": 9,
                "is_immediate": True,
            },
            HoldKind.LOCK,
            9,
            "end the session",
        ),
        ({"stage": STARTING_FEED}, HoldKind.STAGE, NOW_MS, "headgate serve coordinator"),
        ({"stage": AWAITING_CHANGE}, HoldKind.STAGE, NOW_MS, f"headgate why {FEED_NAME}"),
        ({"stage": AWAITING_TRANSACTIONS}, HoldKind.STAGE, NOW_MS, "end the transactions"),
        (
            {**READY, "completion_postponed": True, "stage_ms": 6},
            HoldKind.COMPLETION,
            6,
            "headgate migration complete m1",
        ),
        (
            {**READY, "cutover_after_ms": NOW_MS + 60_000, "message": "cut-over 1: held by 7"},
            HoldKind.LOCK,
            5,
            "headgate migration force-cutover m1",
        ),
        (
            {"state": MigrationState.QUEUED, "throttle_reason": f"{CLEAN_UP} feed f stays", "throttled_ms": 2},
            HoldKind.THROTTLE,
            2,
            "every minute",
        ),
        (
            {
                "ending": MigrationState.CANCELLED,
                "stage": "ending",
                "stage_ms": 4,
                "throttle_reason": "a",
                "message": "b",
            },
            HoldKind.ENDING,
            4,
            "the owner's log",
        ),
        (
            {"ending": MigrationState.CANCELLED, "stage": "ending", "stage_ms": 4},
            HoldKind.ENDING,
            4,
            "the owner's log",
        ),
        (
            {"state": MigrationState.FAILED, "message": "no room", "ended_ms": 3},
            HoldKind.FAILURE,
            3,
            "headgate migration retry m1",
        ),
        (
            {"state": MigrationState.COMPLETE, "throttle_reason": f"{CLEAN_UP} feed f stays", "throttled_ms": 2},
            HoldKind.CLEAN_UP,
            2,
            "every minute",
        ),
    ],
)
def test_a_hold_has_its_kind_its_beginning_and_advice(
    facts: dict[str, Any], wanted: HoldKind, since_ms: int, advice: str
) -> None:
    found = the_hold(migration(**facts))
    assert (found.stage, found.since_ms) == (wanted, since_ms)
    assert found.detail
    assert advice in found.advice


@pytest.mark.parametrize(
    "facts",
    [
        {"stage": "copying"},
        {"stage": "comparing", "live_ms": NOW_MS - 59_000},
        {"stage": CUTTING_OVER, "is_ready_to_complete": True},
        {**READY},
        {**READY, "cutover_after_ms": NOW_MS + 60_000, "cutover_forced": True},
        {"state": MigrationState.COMPLETE},
        {"state": MigrationState.CANCELLED, "message": "cancelled by ann"},
    ],
)
def test_nothing_holds_a_migration_that_gets_on_or_is_over(facts: dict[str, Any]) -> None:
    assert explained(migration(**facts)).reasons == ()


def test_a_stage_in_which_nothing_is_new_is_a_hold_and_names_the_feed() -> None:
    quiet_ms = NOW_MS - round(QUIET_SECONDS * 1_000)
    found = the_hold(migration(stage="catching up", stage_ms=1, live_ms=quiet_ms, rows_copied=12))
    assert (found.stage, found.since_ms) == (HoldKind.STAGE, quiet_ms)
    assert "catching up" in found.detail
    assert "12 rows" in found.detail
    assert f"headgate why {FEED_NAME}" in found.advice
    assert "600 s" in found.advice


def test_a_stage_of_a_program_in_which_nothing_is_new_names_no_feed() -> None:
    by_program = spec(strategy=MigrationStrategy.GH_OST, topic=None)
    found = the_hold(migration(by_program, stage="copying", stage_ms=1, live_ms=1))
    assert found.advice.startswith("see the owner's log. Without progress")


@pytest.mark.parametrize(
    ("facts", "kinds"),
    [
        ({**READY, "completion_postponed": True}, [HoldKind.COMPLETION]),
        ({"state": MigrationState.QUEUED, "launch_postponed": True}, [HoldKind.LAUNCH]),
        ({"state": MigrationState.FAILED}, [HoldKind.FAILURE]),
        ({"state": MigrationState.COMPLETE}, []),
    ],
)
def test_what_waits_for_something_else_or_is_over_is_not_called_quiet(
    facts: dict[str, Any], kinds: list[HoldKind]
) -> None:
    found = explained(migration(**facts, stage_ms=1, live_ms=1))
    assert [hold.stage for hold in found.reasons] == kinds


def test_one_long_statement_at_the_database_is_no_hold() -> None:
    direct = spec(strategy=MigrationStrategy.DIRECT, topic=None)
    record = migration(direct, stage="running the statement", stage_ms=1, live_ms=1, is_immediate=True)
    assert explained(record) == replace(explained(record), reasons=(), feed="")


def test_a_turn_names_the_migrations_that_are_before() -> None:
    waiting = migration(state=MigrationState.READY, sequence=99, table="other")
    found = the_hold(waiting, m2=migration(sequence=2), m3=migration(spec(database="elsewhere"), sequence=3))
    assert found.stage is HoldKind.TURN
    assert "m2" in found.detail
    assert "m3" not in found.detail
    assert found.advice.startswith("`headgate why m2`")
    many = {f"n{number}": migration(sequence=number) for number in range(NAMES_SHOWN_MAX + 2)}
    assert f"n{NAMES_SHOWN_MAX - 1} and 2 more" in the_hold(waiting, **many).detail


def test_completion_in_order_names_what_has_to_complete_first() -> None:
    ordered = spec(in_order_completion=True, context="release")
    before = migration(spec(context="release"), sequence=1, state=MigrationState.QUEUED)
    found = the_hold(migration(ordered, sequence=2, **READY), m0=before)
    assert found.stage is HoldKind.COMPLETION
    assert "m0" in found.detail
    assert found.advice == "`headgate why m0`"
    direct = spec(strategy=MigrationStrategy.DIRECT, topic=None, in_order_completion=True, context="release")
    queued = migration(direct, sequence=2, state=MigrationState.READY, is_immediate=True)
    assert "m0" in the_hold(queued, m0=before).detail
    copied = the_hold(migration(ordered, sequence=2, state=MigrationState.READY), m0=before)
    assert copied.detail == "nothing runs that it would have to wait for", "the order is that of completions"


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (None, "no process owns the migrations"),
        (replace(OWNER, announced_ms=NOW_MS - 20_000), "owner-1 owns the migrations, and was last heard 20 s ago"),
    ],
)
def test_an_owner_that_is_gone_is_said_first(owner: OwnerAnnounced | None, said: str) -> None:
    pending = migration(stage="copying", throttle_reason=f"{OPERATOR} ratio 1")
    found = explain_migration({"m1": pending}, "m1", owner, NOW_MS).reasons
    assert [hold.stage for hold in found] == [HoldKind.OWNER, HoldKind.THROTTLE]
    assert found[0].detail == said
    assert "headgate serve migration" in found[0].advice
    over = migration(state=MigrationState.COMPLETE)
    assert explain_migration({"m1": over}, "m1", owner, NOW_MS).reasons == ()


def test_a_migration_that_does_not_exist_is_not_explained() -> None:
    with pytest.raises(KeyError):
        explain_migration({}, "m1", OWNER, NOW_MS)


def of_feed(name: str = "shop", *topics: str, connection: str | None = "elsewhere", tables: str = "x.y") -> FeedTables:
    return FeedTables(name, frozenset(topics), connection, frozenset({tables}))


def relations(migrations: dict[str, MigrationRecorded], feed: FeedTables) -> dict[str, Beside]:
    return {name: relation for name, (relation, _) in migrations_beside(migrations, feed).items()}


def test_a_feed_is_beside_the_migrations_of_its_topics_and_its_own() -> None:
    pending = {"m1": migration(), "m2": migration(spec(topic="shop.public.other"))}
    over = {"m3": migration(state=MigrationState.COMPLETE)}
    assert relations(pending | over, of_feed("shop", "shop.public.items")) == {"m1": Beside.SOURCE}
    assert relations(pending | over, of_feed(forth_feed("m2"))) == {"m2": Beside.COPY}
    assert relations(over, of_feed("shop", "shop.public.items")) == {}
    direct = {"m1": migration(spec(strategy=MigrationStrategy.DIRECT, topic=None))}
    assert relations(direct, of_feed(FEED_NAME)) == {}, "it has no feed of its own"


@pytest.mark.parametrize(
    ("connection", "table", "relation"),
    [
        ("shop", "public.items", Beside.SINK),
        ("shop", "items", Beside.SINK),
        (None, "public.items", Beside.MAYBE_SINK),
        ("shop", "other.items", None),
        ("shop", "public.others", None),
        ("elsewhere", "public.items", None),
        (None, "public.others", None),
    ],
)
def test_a_feed_is_beside_a_migration_that_changes_a_table_that_it_writes(
    connection: str | None, table: str, relation: Beside | None
) -> None:
    """Its topics are another database's: only the sink's connection and the table say it."""
    pending = {"m1": replace(migration(spec(database="shop")), table="public.items")}
    found = relations(pending, of_feed("f", "source.public.items", connection=connection, tables=table))
    assert found == ({} if relation is None else {"m1": relation})


def test_a_running_migration_keeps_its_feed_and_a_revert_that_of_the_change_before() -> None:
    running = {"m1": migration(), "r1": migration(spec(reverts="m0"))}
    assert keeper_of(running, FEED_NAME) == "m1"
    assert keeper_of(running, back_feed("m0")) == "r1"
    assert keeper_of(running, "shop") == ""
    assert keeper_of({"m1": migration(state=MigrationState.QUEUED)}, FEED_NAME) == ""


@pytest.mark.parametrize(
    ("record", "feed"),
    [
        (migration(), FEED_NAME),
        (migration(spec(strategy=MigrationStrategy.DIRECT, topic=None)), ""),
        (migration(is_immediate=True), ""),
        (migration(state=MigrationState.READY), ""),
    ],
)
def test_a_feed_is_named_while_it_is_followed(record: MigrationRecorded, feed: str) -> None:
    assert explained(record).feed == feed


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ({"state": MigrationState.COMPLETE}, []),
        (
            {"state": MigrationState.COMPLETE, "throttle_reason": f"{CLEAN_UP} away"},
            [HoldKind.OWNER, HoldKind.CLEAN_UP],
        ),
        ({"state": MigrationState.READY}, [HoldKind.OWNER, HoldKind.TURN]),
    ],
)
def test_an_owner_is_missed_where_there_is_something_to_do(more: dict[str, Any], kinds: list[HoldKind]) -> None:
    found = explain_migration({"m1": migration(**more)}, "m1", None, NOW_MS)
    assert [hold.stage for hold in found.reasons] == kinds


@pytest.mark.parametrize("facts", [{"has_nothing_to_do": True}, {"declarative": True}])
def test_what_describes_a_table_waits_for_earlier_changes_of_it(facts: dict[str, Any]) -> None:
    of_spec = {name: value for name, value in facts.items() if name == "declarative"}
    of_record = {name: value for name, value in facts.items() if name != "declarative"}
    wanted = migration(spec(**of_spec), state=MigrationState.READY, sequence=2, ready_ms=8, **of_record)
    earlier = migration(state=MigrationState.READY, sequence=1)
    hold = the_hold(wanted, m0=earlier)
    assert (hold.stage, hold.since_ms) == (HoldKind.TURN, 8)
    assert hold.detail == "m0 of an earlier submission must end first: they change the same table"
    assert hold.advice == "`headgate why m0`; or cancel that one"
