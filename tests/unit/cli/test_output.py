"""What is printed for programs: the same as JSON and as YAML; what is watched is shown again."""

import json
from types import SimpleNamespace

import pytest
import yaml

from headgate.cli import output, rendering
from headgate.cli.output import Output, again, note, show_object, show_rows, show_value

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


def test_programs_get_times_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"ended_ms": 0, "added_ms": 1_700_000_000_000, "lag_ms": 61_000}
    show_object(facts, Output.JSON)
    assert json.loads(capsys.readouterr().out) == facts
    show_rows(("added_ms",), [facts], Output.JSON)
    assert json.loads(capsys.readouterr().out) == [facts]


def paused_after(pauses: int, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def pause(seconds: float) -> None:
        shown.append(f"pause {seconds}")
        if shown.count(f"pause {seconds}") == pauses:
            raise KeyboardInterrupt

    # Not in the module of that name: threads of libraries sleep, too.
    monkeypatch.setattr(output, "time", SimpleNamespace(sleep=pause))


def test_what_is_watched_is_shown_again_at_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    paused_after(2, shown, monkeypatch)
    again(lambda: shown.append("shown"), None)
    assert shown == ["shown"]
    with pytest.raises(KeyboardInterrupt):
        again(lambda: shown.append("shown"), 2.0)
    assert shown == ["shown", "shown", "pause 2.0", "shown", "pause 2.0"]


@pytest.mark.parametrize(
    ("chosen", "is_terminal", "has_clock"),
    [(Output.TABLE, True, True), (Output.JSON, True, False), (Output.TABLE, False, False)],
)
def test_people_who_watch_see_the_clock_and_the_interval(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    chosen: Output,
    is_terminal: bool,
    has_clock: bool,
) -> None:
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(rendering.time, "strftime", lambda _: "2026-11-26 12:00:00 UTC")
    monkeypatch.setattr(output, "_errors", chosen)
    paused_after(1, [], monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        again(lambda: None, 2.5)
    clock = "2026-11-26 12:00:00 UTC, every 2.5 s. Ctrl-C ends it"
    assert (clock in capsys.readouterr().out) == has_clock


def test_what_was_shown_last_stays_while_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal is cleared by the first line of the next page, and by no other."""
    pages: list[str] = []
    monkeypatch.setattr(output, "_errors", Output.TABLE)  # a command that another test has run may have left another
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(rendering, "clear", lambda _every: pages.append("clear"))
    paused_after(2, pages, monkeypatch)

    def show() -> None:
        pages.append("read")
        show_object({"feed": "shop"}, Output.TABLE)
        note("and one line more")

    with pytest.raises(KeyboardInterrupt):
        again(show, 2.0)
    assert pages == ["read", "clear", "pause 2.0"] * 2
    show_object({"feed": "shop"}, Output.TABLE)
    assert pages[6:] == []
