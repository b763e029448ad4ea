"""Who is suspected, who is silent, and who is no longer watched."""

import math
from typing import get_type_hints

import pytest

from headgate.config.settings import Settings
from headgate.coordinator.core.kind import sign_of_session
from headgate.records.base import Key, Record
from headgate.records.control import AgentAnnounced, SessionEnded
from headgate.records.keys import AgentKey, SessionKey
from headgate.runtime.leases import LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, HolderLeases, OwnerWatch, lease_of
from support import build

ONE, TWO = ("a1", "s1"), ("a2", "s1")
ENDED = SessionEnded(owner_rev=1, reason="silent", ended_ms=0)


def learn(leases: HolderLeases, key: Key, value: Record | None, now: float) -> None:
    """What the role loop does with a record of a coordinator's log."""
    sign = sign_of_session(key, value)
    assert sign is not None
    leases.learn(sign, now)


def test_a_session_is_suspected_when_its_lease_has_run_out_since_it_was_last_heard() -> None:
    leases = HolderLeases(10.0)
    leases.heard(ONE, 0.0)
    leases.heard(TWO, 0.0)
    leases.heard(ONE, 6.0)
    assert not leases.suspect(9.9)
    assert leases.suspect(10.0)
    assert leases.take_silent() == [TWO]
    assert not leases.suspect(15.9)
    assert leases.suspect(16.0)
    assert leases.take_silent() == [ONE]
    assert leases.next_deadline() is None


def test_a_suspect_that_is_heard_is_cleared_and_watched_again() -> None:
    leases = HolderLeases(10.0)
    leases.heard(ONE, 0.0)
    assert leases.suspect(10.0)
    leases.heard(ONE, 10.5)
    assert leases.take_silent() == []
    assert not leases.suspect(20.4)
    assert leases.suspect(20.5)


def test_a_silent_session_is_told_once_and_watched_again_only_when_heard() -> None:
    leases = HolderLeases(10.0)
    leases.heard(ONE, 0.0)
    leases.suspect(10.0)
    assert leases.take_silent() == [ONE]
    assert not leases.suspect(100.0)
    leases.heard(ONE, 100.0)
    assert leases.suspect(110.0)


@pytest.mark.parametrize("ended_first", [True, False])
def test_a_session_that_was_ended_is_not_watched_whatever_is_read_first(ended_first: bool) -> None:
    leases = HolderLeases(10.0)
    if ended_first:
        learn(leases, SessionKey(*ONE), ENDED, 0.0)
        leases.heard(ONE, 0.0)
    else:
        leases.heard(ONE, 0.0)
        learn(leases, SessionKey(*ONE), ENDED, 0.0)
    assert not leases.suspect(100.0)


def test_a_deleted_announcement_and_a_suspect_that_ends_are_not_judged() -> None:
    leases = HolderLeases(10.0)
    leases.heard(ONE, 0.0)
    leases.heard(TWO, 0.0)
    leases.suspect(10.0)
    learn(leases, AgentKey(*ONE), None, 10.0)
    learn(leases, SessionKey(*TWO), ENDED, 10.0)
    assert leases.take_silent() == []


def test_a_session_is_forgotten_with_the_record_of_its_death() -> None:
    leases = HolderLeases(10.0)
    learn(leases, SessionKey(*ONE), ENDED, 0.0)
    learn(leases, SessionKey(*ONE), None, 0.0)
    leases.heard(ONE, 0.0)
    assert leases.next_deadline() == 10.0


def test_renewing_gives_everybody_known_a_full_lease() -> None:
    leases = HolderLeases(10.0)
    leases.heard(ONE, 0.0)
    leases.heard(TWO, 5.0)
    leases.suspect(12.0)
    leases.renew_all(12.0)
    assert leases.take_silent() == []
    assert not leases.suspect(21.9)
    assert leases.suspect(22.0)
    assert leases.take_silent() == [ONE, TWO]


def test_heartbeats_do_not_grow_the_heap() -> None:
    leases = HolderLeases(10.0)
    for beat in range(1000):
        leases.heard(ONE, beat / 100)
        leases.heard(TWO, beat / 100)
    assert len(leases._heap) == 2


def test_the_owner_lease_is_the_one_it_announced() -> None:
    watch = OwnerWatch(5.0, now=100.0)
    assert watch.is_vacant()
    assert watch.runs_out_at() == 105.0
    announced = build.owner_announced(version="1", lease_seconds=8.0)
    watch.heard(announced, 102.0)
    assert not watch.is_vacant()
    assert watch.runs_out_at() == 110.0


def announced(lease_seconds: float | None) -> AgentAnnounced:
    return build.agent_announced(schema_version=2, address="here", lease_seconds=lease_seconds)


def test_a_session_is_judged_by_the_lease_it_has_announced() -> None:
    leases = HolderLeases(5.0)
    learn(leases, AgentKey(*ONE), announced(30.0), 0.0)
    learn(leases, AgentKey(*TWO), announced(None), 0.0)
    assert leases.suspect(5.0)
    assert leases.take_silent() == [TWO]
    assert not leases.suspect(29.9)
    assert leases.suspect(30.0)
    assert leases.take_silent() == [ONE]


def test_a_new_owner_gives_each_its_own_lease() -> None:
    leases = HolderLeases(5.0)
    learn(leases, AgentKey(*ONE), announced(30.0), 0.0)
    learn(leases, AgentKey(*TWO), announced(1.0), 0.0)
    leases.renew_all(10.0)
    assert leases.next_deadline() == 11.0
    assert leases.suspect(11.0)
    assert leases.take_silent() == [TWO]
    assert not leases.suspect(39.9)
    assert leases.suspect(40.0)


def test_a_lease_that_is_said_later_and_is_shorter_counts_at_once() -> None:
    leases = HolderLeases(60.0)
    learn(leases, AgentKey(*ONE), announced(None), 0.0)
    learn(leases, AgentKey(*TWO), announced(None), 0.0)
    learn(leases, AgentKey(*ONE), announced(2.0), 1.0)
    assert leases.next_deadline() == 3.0
    assert leases.suspect(3.0)
    assert leases.take_silent() == [ONE]
    assert not leases.suspect(59.0)
    assert leases.suspect(60.0)


@pytest.mark.parametrize(
    ("said", "judged_by"),
    [(None, 5.0), (0.0, 5.0), (-3.0, 5.0), (math.nan, 5.0), (1e-9, 0.2), (20.0, 20.0), (1e9, 300.0)],
)
def test_what_is_announced_is_bounded(said: float | None, judged_by: float) -> None:
    assert lease_of(said, 5.0) == judged_by
    assert lease_of(None, 5.0) == 5.0


def test_nobody_can_be_told_a_lease_that_would_be_cut() -> None:
    (bounds,) = get_type_hints(Settings, include_extras=True)["lease_seconds"].__metadata__
    assert (bounds.gt, bounds.le) == (LEASE_SECONDS_MIN, LEASE_SECONDS_MAX)
