"""How results look to people: whole at every width, in colour on a terminal only, with ages instead of milliseconds."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from headgate.cli import rendering
from headgate.cli.ages import DURATIONS, TIMES, age, duration, moment
from headgate.cli.output import Output, complain, note, show_object, show_rows
from headgate.cli.rendering import STYLES
from headgate.observability.colour import in_colour
from headgate.records.control import FeedState, Liveness, OutcomeStatus, ReplicationState, TaskState, WantedState
from headgate.records.generation import GenerationPhase
from headgate.records.migration import MigrationRecorded, MigrationState
from headgate.sources.resend import Verdict
from headgate.views.rows import AgentRow, FeedRow, OwnerRow, TableRow
from support.terminal import at_a_terminal

HOUR_MS = 3_600_000
FIX = "`pg_dump --schema-only --table public.items source | psql sink`"
ERROR = f"table public.items does not exist at the sink. Create it, for example with {FIX}, then resume the feed"

KINDS = (
    FeedState,
    WantedState,
    ReplicationState,
    TaskState,
    MigrationState,
    GenerationPhase,
    Verdict,
    OutcomeStatus,
    Liveness,
)

Terminal = Callable[[int], None]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of this width without colours, on both streams."""

    def of_width(width: int) -> None:
        def console(*, stderr: bool = False) -> Console:
            return Console(stderr=stderr, width=width, color_system=None, highlight=False, soft_wrap=True)

        monkeypatch.setattr(rendering, "console", console)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return of_width


def rows_of(count: int) -> list[dict[str, object]]:
    return [
        {
            "feed": f"shop{n}",
            "state": "warning",
            "lag_ms": 61_000,
            "agent": "a" * 20,
            "span": "public.items",
            "error": ERROR,
        }
        for n in range(count)
    ]


COLUMNS = ("feed", "state", "lag_ms", "agent", "span", "error")


def test_into_a_pipe_nothing_is_cut_or_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "dispatch", "offset": 7, "state": "y" * 5_000, "record": {"text": "x" * 5_000}}]
    show_rows(("topic", "offset", "state", "record"), rows, Output.TABLE)
    _, row, below = capsys.readouterr().out.splitlines()
    assert "y" * 5_000 in row
    assert below == 'dispatch 7: record: {"text": "' + "x" * 5_000 + '"}'
    show_rows(COLUMNS, rows_of(1), Output.TABLE)
    header, row, below = capsys.readouterr().out.splitlines()
    assert header.split() == ["feed", "state", "lag", "agent", "span"]
    assert row.split() == ["shop0", "warning", "1", "min", "a" * 20, "public.items"]
    assert below == f"shop0 public.items: error: {ERROR}"


def test_sentences_are_below_the_table_in_whole_words(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(80)
    show_rows(COLUMNS, rows_of(2), Output.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["feed", "shop0", "shop1"]
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[3:]) == f"shop0 public.items, shop1 public.items: error: {ERROR}"


def test_a_sentence_about_many_rows_is_shown_once(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(200)
    rows = [{"span": f"t{n}", "stage": "sink", "detail": "down", "advice": "start it"} for n in range(12)]
    other = {"span": "late", "stage": "sink", "detail": "down", "advice": "wait"}
    show_rows(("span", "stage", "detail", "advice"), [*rows, other], Output.TABLE)
    below = [line for line in capsys.readouterr().out.splitlines() if ": " in line]
    many = "t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 more"
    assert below == [f"{many}: detail: down", f"{many}: advice: start it", "late: detail: down", "late: advice: wait"]


def test_a_table_that_is_too_wide_is_a_block_for_each_row(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(40)
    show_rows((*COLUMNS, "notices"), rows_of(2), Output.TABLE)
    first, second = capsys.readouterr().out.rstrip().split("\n\n")
    lines = first.splitlines()
    assert lines[:5] == [
        "feed   shop0",
        "state  warning",
        "lag    1 min",
        f"agent  {'a' * 20}",
        "span   public.items",
    ]
    assert " ".join(line[7:] for line in lines[5:]) == ERROR
    assert "notices" not in first, "what a row does not have"
    assert second.startswith("feed   shop1")


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_command_stays_on_one_line(terminal: Terminal, capsys: pytest.CaptureFixture[str], width: int) -> None:
    terminal(width)
    show_object({"error": ERROR}, Output.TABLE)
    note(ERROR)
    complain(ERROR)
    printed = capsys.readouterr()
    assert (printed.out.count(FIX), printed.err.count(FIX)) == (1, 2)
    for line in (*printed.out.splitlines(), *printed.err.splitlines()):
        assert len(line) <= width or FIX in line


def test_facts_are_shown_once_and_what_has_parts_is_yaml(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"feed": "shop", "way_back": {"state": "kept", "offset": 7}, "topics": ["a", "b"], "none": [], "old": None}
    spec = {"source": {"topics": ["a"]}, "sink": {"type": "mysql"}}
    for width in (None, 24):
        if width:
            terminal(width)
        show_object({**facts, "spec": spec}, Output.TABLE)
        assert capsys.readouterr().out.splitlines() == [
            "feed      shop",
            *(["way_back  state=kept, offset=7"] if width is None else ["way_back  state=kept,", "          offset=7"]),
            "topics    a, b",
            "none      -",
            "old       -",
            "spec:",
            "  source:",
            "    topics:",
            "    - a",
            "  sink:",
            "    type: mysql",
        ]


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str], terminal: Terminal) -> None:
    terminal(80)
    show_rows(("feed", "error"), [{"feed": "a\x1b[31mb", "error": "c\x1b]0;title\x07d"}], Output.TABLE)
    note("e\x9b31mf")
    printed = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x9b"} & set(printed.out + printed.err)
    assert "a\ufffd[31mb" in printed.out


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0 ms"),
        (95, "95 ms"),
        (3_240, "3.2 s"),
        (42_900, "42 s"),
        (180_000, "3 min"),
        (90 * 60_000, "1.5 h"),
        (2 * HOUR_MS, "2 h"),
        (24 * HOUR_MS, "1 d"),
        (1_000 * HOUR_MS, "41 d"),
    ],
)
def test_a_duration_has_one_unit(ms: int, shown: str) -> None:
    assert duration(ms) == shown


def test_a_time_is_a_distance_from_now() -> None:
    now = 1_700_000_000_000
    assert moment(now, now - 180_000) == "3 min ago"
    assert moment(now, now + 2 * HOUR_MS) == "in 2 h"
    assert age(now, now + 5_000) == "0 ms", "another machine's clock"


def test_times_are_ages_and_those_that_have_not_come_are_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time_ns() // 1_000_000
    show_object({"added_ms": now - 3 * HOUR_MS, "ended_ms": 0, "retention_ms": -1, "lag_ms": None}, Output.TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "added      3 h ago",
        "ended      -",
        "retention  -1",
        "lag        -",
    ]


def test_every_time_that_a_row_has_is_known() -> None:
    fields = {
        field.encode_name
        for row in (MigrationRecorded, TableRow, FeedRow, AgentRow, OwnerRow)
        for field in msgspec.structs.fields(row)
        if field.encode_name.endswith("_ms")
    }
    assert fields <= TIMES | DURATIONS
    assert not TIMES & DURATIONS


def test_every_state_has_a_colour() -> None:
    known = [word for words in STYLES.values() for word in words.split()]
    assert len(known) == len(set(known))
    assert {str(state.value) for kind in KINDS for state in kind} - set(known) == set()


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": ""}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_colour_is_for_terminals_and_up_to_the_user(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_terminal: bool, expected: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert in_colour(sys.stdout) is expected


def typed_at_a_terminal(**variables: str) -> bytes:
    """What `headgate version` prints at a real terminal with these variables."""
    headgate = str(Path(sys.executable).with_name("headgate"))
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    return at_a_terminal([headgate, "version"], environment={**kept, "TERM": "xterm-256color", **variables})


@pytest.mark.parametrize(
    ("variables", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_command_at_a_terminal_is_in_colour_unless_that_is_not_wanted(
    variables: dict[str, str], has_colour: bool
) -> None:
    printed = typed_at_a_terminal(**variables)
    assert b"schema_version" in printed
    assert (b"\x1b[" in printed) == has_colour
