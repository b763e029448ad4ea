"""Options that stand together are declared once; each command shows and takes them as its own."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.options import CommandGroup, OptionGroup


class Where(OptionGroup, frozen=True):
    host: Annotated[str, typer.Option("--host", help="which machine")]
    ports: Annotated[list[int] | None, typer.Option("--port", "-p")] = None


class Further(OptionGroup, frozen=True):
    retries: Annotated[int, typer.Option("--retries", min=1)] = 3


app = CommandGroup()


@app.command()
def ask(
    question: Annotated[str, typer.Argument()],
    *,
    loud: Annotated[bool, typer.Option()] = False,
    at: Where,
    more: Further,
) -> None:
    """Ask somebody."""
    typer.echo(f"{question} {loud} {at} {more}")


@app.command()
def tell(*, at: Where) -> None:
    typer.echo(at)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_the_command_is_called_with_the_groups() -> None:
    assert run("ask", "why", "--loud", "--host", "h", "-p", "1", "--port", "2", "--retries", "5") == (
        0,
        f"why True {Where(host='h', ports=[1, 2])} {Further(retries=5)}\n",
    )


def test_what_is_not_given_has_the_fields_default() -> None:
    assert run("ask", "why", "--host", "h") == (0, f"why False {Where(host='h')} {Further()}\n")
    assert run("tell", "--host", "h") == (0, f"{Where(host='h')}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["tell"], "Missing option '--host'"), (["ask", "why", "--host", "h", "--retries", "0"], "'--retries'")],
)
def test_a_field_is_checked_like_any_option(arguments: list[str], said: str) -> None:
    status, text = run(*arguments)
    assert status == 2
    assert said in text


def test_help_shows_the_fields_in_the_place_of_the_group() -> None:
    _, text = run("ask", "--help")
    assert "Ask somebody." in text
    assert "which machine" in text
    places = [text.index(option) for option in ("--loud", "--host", "--port", "--retries")]
    assert places == sorted(places)


def test_the_function_stays_as_it_was_for_who_calls_it(capsys: pytest.CaptureFixture[str]) -> None:
    tell(at=Where(host="h"))
    assert capsys.readouterr().out == f"{Where(host='h')}\n"
