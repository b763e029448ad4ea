"""What becomes of an alteration that the sink refuses as a whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.sinks.altering import ColumnChanges
from headgate.sinks.contract import SinkRefusedError
from headgate.tables import evolution
from headgate.tables.alteration import Alteration
from headgate.tables.evolution import AtLake, fit_columns


class Lake:
    def alter(self, *_: Any) -> bool:
        raise SinkRefusedError("column c is of a partition field")


def planned(monkeypatch: pytest.MonkeyPatch, alteration: Alteration, before: Any = None) -> None:
    @contextmanager
    def both(*_: Any) -> Iterator[Any]:
        yield None, before, SimpleNamespace(sink=None)

    monkeypatch.setattr(evolution, "_both", both)
    monkeypatch.setattr(evolution, "plan_fitting", lambda *_: alteration)


def test_a_lake_that_refuses_is_not_taken_for_altered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution, "LakeDefinition", SimpleNamespace)
    planned(
        monkeypatch,
        Alteration(name="t", schema="s", columns=("c",), changes=ColumnChanges()),
        SimpleNamespace(present=None),
    )
    lake = AtLake(Lake(), None, {})  # type: ignore[arg-type]
    with pytest.raises(SinkRefusedError, match="partition field"):
        fit_columns(None, None, lambda _: None, lake)  # type: ignore[arg-type]


def test_a_database_is_told_to_have_done_what_it_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def executed(_spec: Any, alteration: Alteration, *_: Any) -> bool:
        if "bad" in alteration.statements:
            raise SinkRefusedError("a view has it")
        return True

    planned(
        monkeypatch,
        Alteration(name="t", schema="s", statements=("good", "bad"), one_by_one=("good", "bad"), columns=("a", "b")),
    )
    monkeypatch.setattr(evolution, "_is_executed", executed)
    fitted = fit_columns(None, None, lambda _: None)  # type: ignore[arg-type]
    assert (fitted.statements, fitted.columns) == (("good",), ())
    assert fitted.refusals == ("bad was refused by the sink, so run it yourself: a view has it",)
