"""How a wait is told: a spinner with its time on a terminal, one line elsewhere."""

import io
import re
import time

from rich.console import Console
from rich.text import Text

from headgate_lab.demo.display import Display


def display(*, is_terminal: bool) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    made = Display(to_stderr=False)
    made.console = Console(file=out, force_terminal=is_terminal, width=100, highlight=False)
    return made, out


def test_elsewhere_a_stage_is_one_line_however_often_it_tells() -> None:
    made, out = display(is_terminal=False)
    with made.stage("starting a broker") as tell:
        for number in range(50):
            tell(f"{number} of 50")
    (line,) = out.getvalue().splitlines()
    assert line.endswith(" s  starting a broker")


def test_on_a_terminal_a_stage_shows_how_far_it_is_and_leaves_a_line_with_its_time() -> None:
    made, out = display(is_terminal=True)
    deadline = time.monotonic() + 30
    with made.stage("starting agents") as tell:
        tell("1 of 3")
        while "1 of 3" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert re.search(r"starting agents, \d+ s: 1 of 3", out.getvalue())
    last = Text.from_ansi(out.getvalue()).plain.strip().splitlines()[-1]
    assert re.search(r"s  starting agents: \d+\.\d s$", last)


def test_a_terminal_gets_whole_words_below_each_other() -> None:
    made, out = display(is_terminal=True)
    words = [f"shop.table_{number}" for number in range(20)]
    made.say(" ".join(words))
    first, *more = Text.from_ansi(out.getvalue()).plain.splitlines()
    assert first.startswith("   0.0 s  shop.table_0 ")
    assert all(line.startswith(" " * 10 + "shop.") for line in more)
    assert " ".join([first, *more]).split()[2:] == words


def test_elsewhere_a_message_is_one_line() -> None:
    made, out = display(is_terminal=False)
    made.say("word " * 50)
    assert len(out.getvalue().splitlines()) == 1
