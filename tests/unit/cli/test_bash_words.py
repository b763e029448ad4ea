"""Words that bash has divided: bash replaces the last piece, so only what follows the others is offered."""

import os

import pytest
import typer

from headgate.cli.bash_words import Line, put_together, whole_words


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["headgate", "fe"], Line(["headgate", "fe"], "")),
        (["headgate", "t", "a.b", "@"], Line(["headgate", "t", "a.b@"], "a.b")),
        (["headgate", "t", "a.b", "@", "te"], Line(["headgate", "t", "a.b@te"], "a.b")),
        (["headgate", "t", "a.b", "@", "te", "=", "x"], Line(["headgate", "t", "a.b@te=x"], "a.b@te=")),
        (["headgate", "t", "a.b", "@", "te", "=", "x", ""], Line(["headgate", "t", "a.b@te=x", ""], "")),
        (["headgate", "--output", "=", "json", "sh"], Line(["headgate", "--output=json", "sh"], "")),
        (["headgate", "--output", "=", ""], Line(["headgate", "--output=", ""], "")),
    ],
)
def test_a_line_has_the_words_that_were_typed(words: list[str], line: Line) -> None:
    assert put_together(words) == line


def test_the_answer_is_what_bash_adds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COMP_WORDS", "headgate\nt\na.b\n@\nte\nbehind the cursor")
    monkeypatch.setenv("COMP_CWORD", "4")
    monkeypatch.setenv("_HEADGATE_COMPLETE", "complete_bash")
    with whole_words():
        assert (os.environ["COMP_WORDS"], os.environ["COMP_CWORD"]) == ("headgate\nt\na.b@te", "2")
        typer.echo("a.b@tenant=1\na.b@tenant=2")
    assert capsys.readouterr().out == "@tenant=1\n@tenant=2\n"


def test_other_shells_and_commands_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_WORDS", "headgate\na\n@\nb")
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.delenv("_HEADGATE_COMPLETE", raising=False)
    with whole_words():
        typer.echo("a@b")
    assert capsys.readouterr().out == "a@b\n"
