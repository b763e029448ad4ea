"""Every fault that was drawn strikes somebody, or the campaign knows that it did not."""

from collections.abc import Iterator
from random import Random

from headgate_lab.chaos.faults import FaultKind
from headgate_lab.chaos.rounds import SHORT_ROUNDS, Rounds

ROUNDS = 40
SAME_SERVER = {FaultKind.DATABASE_RESTARTED, FaultKind.DATABASE_FAILED_OVER, FaultKind.PASSWORD_ROTATED}


def rounds(seed: int) -> Rounds:
    return Rounds(Random(seed))  # noqa: S311 - a choice, not a secret


def play(rounds: Rounds, drawn: Iterator[tuple[FaultKind, ...]]) -> list[tuple[FaultKind, ...]]:
    """As a campaign does: in one round each server is struck once."""
    played = []
    for kinds in drawn:
        played.append(kinds)
        struck_server = False
        for kind in kinds:
            rounds.note(kind, has_struck=not (kind in SAME_SERVER and struck_server))
            struck_server |= kind in SAME_SERVER
    return played


def drawn_until(rounds: Rounds, count: int) -> Iterator[tuple[FaultKind, ...]]:
    left = iter(range(count))
    return rounds.until(lambda: next(left, None) is None)


def test_what_found_no_victim_strikes_alone_at_the_end() -> None:
    met = 0
    for seed in range(200):
        campaign = rounds(seed)
        played = play(campaign, drawn_until(campaign, 4))
        assert campaign.missed == ()
        met += len(played) > 4
        assert all(len(kinds) == 1 for kinds in played[4:])
    assert met > 0, "no seed drew two faults of one server together"


def test_every_kind_is_drawn_once_before_one_comes_again() -> None:
    campaign = rounds(7)
    drawn = [kind for kinds in play(campaign, drawn_until(campaign, ROUNDS)) for kind in kinds]
    assert set(drawn[: len(FaultKind)]) == set(FaultKind)


def test_a_fault_that_finds_nobody_even_alone_stays_missed() -> None:
    campaign = rounds(7)
    played = []
    for kinds in campaign.short():
        played.append(kinds)
        for kind in kinds:
            campaign.note(kind, has_struck=kind is not FaultKind.PASSWORD_ROTATED)
    assert played == [*SHORT_ROUNDS, (FaultKind.PASSWORD_ROTATED,)]
    assert campaign.missed == (FaultKind.PASSWORD_ROTATED,)


def test_a_fault_that_strikes_later_is_not_missed() -> None:
    campaign = rounds(7)
    campaign.note(FaultKind.PASSWORD_ROTATED, has_struck=False)
    campaign.note(FaultKind.PASSWORD_ROTATED, has_struck=True)
    assert campaign.missed == ()
