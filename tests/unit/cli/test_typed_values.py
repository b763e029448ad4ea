"""Values that have their type already, which typer's converter would return as they are."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from headgate.cli.groups import CommandGroup
from headgate.cli.typed_values import TypedValues, as_typed


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def commanded(seen: dict[str, Any]) -> CommandGroup:
    app = CommandGroup()

    @app.command()
    def paint(
        name: str,
        others: Annotated[list[str] | None, typer.Argument()] = None,
        *,
        colour: Colour = Colour.RED,
        size: Annotated[float, typer.Option(min=0.5, max=9)] = 3.0,
        rounds: Annotated[int | None, typer.Option(min=1)] = None,
        way: Annotated[Literal["up", "down"], typer.Option()] = "up",
        marks: Annotated[list[str] | None, typer.Option("--mark")] = None,
        dry: Annotated[bool, typer.Option("--dry")] = False,
    ) -> None:
        seen.update({given: value for given, value in locals().items() if given != "seen"})

    return app


LINES = [
    "a",
    "a b c",
    "a --colour blue --way down --mark x --mark y --dry",
    "a --colour BLUE",
    "a --colour green",
    "a --way sideways",
    "a --size 4",
    "a --size 0.1",
    "a --size 99",
    "a --size wide",
    "a --rounds 2",
    "a --rounds 0",
    "a --rounds 1.5",
    "",
]


@pytest.mark.parametrize("line", LINES)
def test_a_command_gets_what_typer_alone_would_give_it(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours: dict[str, Any] = {}
    done = CliRunner().invoke(commanded(ours), line.split())
    monkeypatch.setattr("headgate.cli.groups.keep_typed", lambda _: None)
    theirs: dict[str, Any] = {}
    without = CliRunner().invoke(commanded(theirs), line.split())
    assert (ours, done.exit_code, done.output) == (theirs, without.exit_code, without.output)
    assert [type(value) for value in ours.values()] == [type(value) for value in theirs.values()]


def test_typer_has_the_method_that_is_taken_over() -> None:
    """Otherwise everything works, and every command imports pydantic."""
    command: Any = get_command(commanded({}))
    found = {type(each.get_runtime_param) for each in command.get_params(typer.Context(command))}
    assert found == {TypedValues}


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        ("x", str, "x"),
        ("1", int, None),
        (1, int, 1),
        (True, int, None),
        (1, float, None),
        ("red", Colour, Colour.RED),
        ("RED", Colour, None),
        (Colour.BLUE, Colour, Colour.BLUE),
        ("up", Literal["up", "down"], "up"),
        ("left", Literal["up", "down"], None),
        (("a", "b"), list[str], ["a", "b"]),
        (("1",), list[int], None),
        ("a", list[str], None),
        (b"x", str, None),
    ],
)
def test_what_is_converted_by_typer_alone(value: object, kind: Any, found: object) -> None:
    assert as_typed(value, kind) == found
    assert type(as_typed(value, kind)) is type(found)
