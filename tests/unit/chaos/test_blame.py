"""A lost lease is somebody's fault, or a bug."""

import pytest

from headgate_lab.chaos.blame import Blame, false_losses
from headgate_lab.chaos.faults import EVERYBODY
from headgate_lab.demo.watch import Chronicle, Death, OwnerTerm

LEASE_SECONDS = 5.0
OWNERS = {"host-1": "coordinator-1", "host-2": "coordinator-2"}


def told(*sessions: tuple[str, str, float], heard_at: float = 99.0) -> Chronicle:
    """Agent, session, when it announced itself; when all of them were last heard."""
    seen = Chronicle()
    for agent, session, at in sessions:
        seen.sessions.setdefault(agent, []).append(session)
        seen.announced_at[session] = at
        seen.heard_at[session] = heard_at
    return seen


def test_a_death_without_a_fault_is_found() -> None:
    seen = told(("agent-1", "a", 0.0), ("agent-2", "b", 0.0))
    seen.deaths.append(Death("agent-1", "a", "silent for 5 s", 100.0))
    assert false_losses(seen, Blame(LEASE_SECONDS), OWNERS, 1) == ["session a of agent-1: silent for 5 s"]


def test_a_fault_explains_the_losses_of_whom_it_touched_and_of_nobody_else() -> None:
    seen = told(("agent-1", "a", 0.0), ("agent-2", "b", 0.0))
    seen.deaths += [Death("agent-1", "a", "silent", 100.0), Death("agent-2", "b", "silent", 100.0)]
    blame = Blame(LEASE_SECONDS)
    blame.begin({"agent-1"}, 94.0)
    assert false_losses(seen, blame, OWNERS, 1) == ["session b of agent-2: silent"]
    blame.begin({EVERYBODY}, 99.0)
    assert false_losses(seen, blame, OWNERS, 1) == []


def test_a_fault_explains_nothing_before_it_nor_long_after_it() -> None:
    blame = Blame(LEASE_SECONDS)
    touch = blame.begin({"agent-1"}, 50.0)
    touch.ended = 60.0
    after = 60.0 + 3 * LEASE_SECONDS
    assert not blame.explains("agent-1", 49.8, 49.9)
    assert blame.explains("agent-1", after - 1, after)
    assert not blame.explains("agent-1", after - 1, after + 0.1)


def test_a_loss_that_nobody_could_write_down_for_long_is_still_the_fault_of_what_silenced_the_holder() -> None:
    """A broker that restarts on a busy machine: all leases run out at once, and there is no owner to say so."""
    seen = told(("agent-1", "a", 0.0), heard_at=50.0)
    seen.deaths.append(Death("agent-1", "a", "silent", 200.0))
    seen.terms += [OwnerTerm("host-1", 5, 2.0), OwnerTerm("host-2", 9, 190.0)]
    seen.heard_at[5] = 50.0
    blame = Blame(LEASE_SECONDS)
    blame.begin({EVERYBODY}, 51.0).ended = 90.0
    assert false_losses(seen, blame, OWNERS, 1) == []
    seen.heard_at |= {"a": 150.0, 5: 150.0}
    assert len(false_losses(seen, blame, OWNERS, 1)) == 2, "they were heard long after it"


def test_a_session_that_was_given_up_in_silence_is_found_by_its_successor() -> None:
    seen = told(("agent-1", "a", 0.0), ("agent-1", "b", 70.0))
    seen.heard_at["a"] = 64.0
    assert false_losses(seen, Blame(LEASE_SECONDS), OWNERS, 1) == ["session a of agent-1: gave it up by itself"]
    blame = Blame(LEASE_SECONDS)
    blame.begin({"agent-1"}, 60.0)
    assert false_losses(seen, blame, OWNERS, 1) == []


def test_a_term_that_ends_needs_a_fault_of_its_owner() -> None:
    seen = told()
    seen.terms += [OwnerTerm("host-2", 1, 1.0), OwnerTerm("host-1", 5, 2.0), OwnerTerm("host-2", 9, 80.0)]
    seen.heard_at |= {1: 1.0, 5: 76.0, 9: 80.0}
    assert len(false_losses(seen, Blame(LEASE_SECONDS), OWNERS, 2)) == 1
    blame = Blame(LEASE_SECONDS)
    blame.begin({"coordinator-2"}, 75.0)
    assert len(false_losses(seen, blame, OWNERS, 2)) == 1, "the successor was touched, not the owner"
    blame.begin({"coordinator-1"}, 75.0)
    assert false_losses(seen, blame, OWNERS, 2) == []


@pytest.mark.parametrize(
    ("holds_up", "ended", "is_explained"),
    [
        (True, 75.0, True),
        (True, 70.9, False),
        (True, 81.1, False),
        (True, None, False),
        (False, 75.0, False),
    ],
)
def test_a_campaign_that_was_held_up_may_depose_an_owner_that_lives(
    holds_up: bool, ended: float | None, is_explained: bool
) -> None:
    seen = told()
    seen.terms += [OwnerTerm("host-2", 1, 1.0), OwnerTerm("host-1", 5, 72.0), OwnerTerm("host-2", 9, 82.0)]
    seen.heard_at |= {1: 1.0, 5: 76.0, 9: 82.0}
    blame = Blame(LEASE_SECONDS)
    blame.begin({"coordinator-2"}, 60.0, holds_up=holds_up).ended = ended
    assert (false_losses(seen, blame, OWNERS, 2) == []) is is_explained
