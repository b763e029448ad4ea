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
