"""The slot of a cut-over, whose name a former try may still have."""

import psycopg
import pytest

from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.strategies.postgresql import cutover
from headgate.migration.strategies.postgresql.cutover import open_slot


class Session(BoundedConnection):
    """Refuses the statement a few times."""

    def __init__(self, *errors: psycopg.Error) -> None:
        self.errors = list(errors)

    def __del__(self) -> None:
        pass

    def execute(self, *_: object, **__: object) -> None:  # type: ignore[override]
        if self.errors:
            raise self.errors.pop(0)


def test_the_slot_of_a_former_try_is_waited_for() -> None:
    session = Session(psycopg.errors.DuplicateObject("it exists"), psycopg.errors.DuplicateObject("it exists"))
    open_slot(session, "headgate_x_1")
    assert not session.errors


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutover, "SLOT_SECONDS_MAX", 0.0)
    with pytest.raises(psycopg.errors.DuplicateObject):
        open_slot(Session(psycopg.errors.DuplicateObject("it exists")), "headgate_x_1")


def test_another_error_is_one_at_once() -> None:
    session = Session(psycopg.errors.ConfigurationLimitExceeded("all slots are in use"))
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        open_slot(session, "headgate_x_1")
