"""What is printed for programs: the same as JSON and as YAML; what is watched is shown again."""

import json

import pytest
import yaml

from headgate.cli import output
from headgate.cli.output import Output, again, show_object, show_rows, show_value

VALUE = {"feed": "shöp", "spans": [{"start": {"0": 7}, "error": None}], "state": "normal: yes"}


@pytest.mark.parametrize("value", [VALUE, [VALUE, VALUE], []])
def test_yaml_says_what_json_says(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    show_value(Output.JSON, value)
    as_json = json.loads(capsys.readouterr().out)
    show_value(Output.YAML, value)
    printed = capsys.readouterr().out
    assert as_json == yaml.safe_load(printed) == value
    assert "shöp" in printed or value == []


def test_rows_and_facts_are_whole_in_both(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(("feed",), [VALUE], Output.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == [VALUE]
    show_object(VALUE, Output.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == VALUE


def test_what_is_watched_is_shown_again_at_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def pause(seconds: float) -> None:
        shown.append(f"pause {seconds}")
        if len(shown) > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(output.time, "sleep", pause)
    again(lambda: shown.append("shown"), None)
    assert shown == ["shown"]
    with pytest.raises(KeyboardInterrupt):
        again(lambda: shown.append("shown"), 2.0)
    assert shown == ["shown", "shown", "pause 2.0", "shown", "pause 2.0"]


def test_a_row_is_one_line_and_its_long_texts_stand_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"feed": "shop", "state": "warning " * 20, "error": "a long\nstory " * 30},
        {"feed": "other", "state": "normal", "error": None, "notices": ["topic x is left out"]},
    ]
    for width in (None, 40):
        monkeypatch.setattr(output, "_width", lambda width=width: width or 1000)
        show_rows(("feed", "state", "error", "notices"), rows, Output.TABLE)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 5
        assert max(map(len, lines[:3])) <= (width or 1000)
        assert lines[3] == "shop: error: " + " ".join(["a long story"] * 30)
        assert lines[4] == 'other: notices: ["topic x is left out"]'


def test_facts_are_a_line_each_and_what_is_longer_than_the_terminal_stands_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"topics": [f"shop.public.t{n}" for n in range(20)]}
    facts = {"feed": "shop", "state": "normal", "error": "a long\nstory " * 9, "spec": long}
    monkeypatch.setattr(output, "_width", lambda: 40)
    show_object(facts, Output.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:4])) == 40
    assert [line.split()[0] for line in lines[:4]] == list(facts)
    assert lines[4:] == ["error: " + " ".join(["a long story"] * 9), f"spec: {json.dumps(long)}"]
    monkeypatch.undo()
    show_object(facts, Output.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[3].split(maxsplit=1) == ["spec", json.dumps(long)]
    assert lines[0] == "feed   shop", "no line is filled up to the longest"


def test_a_fact_that_just_fits_the_terminal_is_not_told_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_width", lambda: 40)
    for length, lines in ((40 - len("feed  "), 1), (41 - len("feed  "), 2)):
        show_object({"feed": "x" * length}, Output.TABLE)
        printed = capsys.readouterr().out.splitlines()
        assert len(printed) == lines
        assert printed[-1].count("x") == length


def test_into_a_pipe_no_row_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "dispatch", "offset": 7, "state": "y" * 5_000, "record": "x" * 5_000}]
    show_rows(("topic", "offset", "state", "record"), rows, Output.TABLE)
    _, row, below = capsys.readouterr().out.splitlines()
    assert "y" * 5_000 in row
    assert below == "dispatch 7: record: " + "x" * 5_000
