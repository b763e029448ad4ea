"""A rotated password strikes whoever has a session, and is over only when somebody has read the new secret."""

from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from headgate_lab.chaos import faults
from headgate_lab.chaos.faults import FaultKind, Wound, strike
from headgate_lab.chaos.world import Server
from headgate_lab.demo.services import PASSWORD_FILE
from headgate_lab.demo.watch import WatchError

NEW = "new"


class FakeTarget:
    """A database with ``open`` sessions of Headgate's user; the first ``slow`` attempts to end them end none."""

    def __init__(self, sessions: int, slow: int = 0) -> None:
        self.open = sessions
        self.slow = slow
        self.password = "old"

    def rotate_password(self) -> str:
        self.password = NEW
        return NEW

    def end_sessions(self) -> None:
        assert self.password == NEW, "a session that ends before the password is changed comes back by the old one"
        if self.slow > 0:
            self.slow -= 1
        else:
            self.open = 0

    def sessions(self) -> int:
        return self.open


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "SESSIONS_SECONDS_MAX", 0.0)


def rotate(target: FakeTarget, folder: Path, busy: set[str] | None = None) -> Wound | None:
    world = SimpleNamespace(target=target, scratch=SimpleNamespace(folder=folder))
    found = busy if busy is not None else set()
    return strike(world, FaultKind.PASSWORD_ROTATED, Random(0), found)  # type: ignore[arg-type]  # noqa: S311


def test_sessions_end_and_the_secret_follows(tmp_path: Path) -> None:
    target = FakeTarget(sessions=3, slow=2)
    wound = rotate(target, tmp_path)
    assert wound is not None
    assert wound.heal is not None
    assert wound.recovered is not None
    assert target.sessions() == 0
    assert not (tmp_path / PASSWORD_FILE).exists()
    wound.heal()
    assert (tmp_path / PASSWORD_FILE).read_text() == NEW
    assert not wound.recovered()
    target.open = 1
    assert wound.recovered()


@pytest.mark.usefixtures("patience")
def test_nobody_is_struck_where_nobody_has_a_session(tmp_path: Path) -> None:
    target = FakeTarget(sessions=0)
    assert rotate(target, tmp_path) is None
    assert target.password != NEW, "the secret would never follow"


def test_a_server_that_is_struck_already_is_left_alone(tmp_path: Path) -> None:
    target = FakeTarget(sessions=3)
    assert rotate(target, tmp_path, {Server.DATABASE}) is None
    assert (target.password, target.open) == ("old", 3)


@pytest.mark.usefixtures("patience")
def test_sessions_that_do_not_end_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(WatchError, match="sessions with the old password do not end"):
        rotate(FakeTarget(sessions=3, slow=1_000), tmp_path)


def test_a_target_that_takes_the_old_password_is_found_out(tmp_path: Path) -> None:
    target = FakeTarget(sessions=3)
    wound = rotate(target, tmp_path)
    assert wound is not None
    assert wound.heal is not None
    target.open = 1
    with pytest.raises(WatchError, match="still takes the old password"):
        wound.heal()
    assert (tmp_path / PASSWORD_FILE).read_text() == NEW, "services that are left must not log in by an old one"
