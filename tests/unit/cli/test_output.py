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
