"""Examples in the documents: feeds are accepted by the parser of feeds, commands and their options exist."""

import re
import shlex
import subprocess
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.main import get_command

from headgate.cli.main import app
from headgate.config.feed import FeedSpec, load_feed
from support.pages import PAGES, ROOT, TUTORIALS, blocks, blocks_of, indented, prose

FEEDS: Final = [(page, text) for page, text in blocks("yaml") if text.startswith("feed:")]
LINES: Final = [
    (page, line)
    for language in ("", "bash", "sh")
    for page, text in blocks(language)
    for line in text.replace("\\\n", " ").splitlines()
]
"""Of blocks that may have commands. What a shell takes as one line is one."""
SHOWN: Final = {
    (page, command.partition(" #")[0].strip())
    for page, line in LINES
    for command in re.findall(r"^(?:.*\s)?(headgate [a-z].*)", line.partition(" #")[0])
    if not re.match(r"\s*[#│]", line)
}
NAMED: Final = {
    (path.name, command)
    for path in [*PAGES, *sorted((ROOT / "services").rglob("*.py"))]
    for command in re.findall(r"(?<!`)`(headgate [a-z][^`{}|…]*)`(?!`)", path.read_text(encoding="utf-8"))
}
"""In a sentence, of a page or of an error."""
COMMANDS: Final = sorted(SHOWN | NAMED)
TAKES_OPTION: Final = "--tool-option"
"""Its value is an option of another program."""
TARGETS: Final = sorted(
    {(page, target) for page in PAGES for target in re.findall(r"`make ([a-z-]+)", page.read_text())}
)


@pytest.mark.parametrize(("page", "text"), FEEDS)
def test_a_feed_is_accepted(page: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "feed.yaml"
    path.write_text(text, encoding="utf-8")
    assert isinstance(load_feed(path), FeedSpec)
    assert yaml.safe_load(text)["feed"]


def test_the_readme_has_a_feed() -> None:
    assert "README.md" in {page for page, _ in FEEDS}


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_exists_with_its_options(page: str, command: str) -> None:
    words = shlex.split(command)[1:]
    names = [word for word in words if re.fullmatch(r"[a-z]+(\|[a-z]+)*", word)]
    for verb in names[1].split("|") if len(names) > 1 and "|" in names[1] else [None]:
        path = [names[0], verb] if verb else names
        known = options_of(*path)
        given = [word for before, word in pairwise(["", *words]) if before != TAKES_OPTION and word.startswith("--")]
        for option in (word.partition("=")[0] for word in given):
            assert option in known, f"{page}: {command}: no option {option}"
    assert (found := why_not_one_command(command)) is None, f"{page}: {command}: {found}"


def why_not_one_command(text: str) -> str | None:
    """Why it cannot be run as it is; None if it can. In a sentence the last option may lack its value."""
    text = re.sub(r"<[^>]*>", "X", re.sub(r'"\n\s*"', "", text))  # a placeholder; a string of two lines of code
    words = list(takewhile(lambda word: not set(word) <= set("|;&"), shlex.split(text)))
    if "headgate" in words[1:]:
        return "two commands in one line"
    command: Any = get_command(app)
    context = command.context_class(command, info_name="headgate")
    words = words[1:-1] if re.fullmatch(r"--[a-z-]+", words[-1]) else words[1:]
    while words and (name := words[0].partition("|")[0]) and hasattr(command, "get_command"):
        found = command.get_command(context, name)
        if found is None:
            break
        command, words = found, words[1:]
        context = command.context_class(command, parent=context, info_name=name)
    _, left, _ = command.make_parser(context).parse_args(list(words))
    return None if hasattr(command, "get_command") or not left else f"arguments {left} are too many"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("headgate migration submit 'DROP TABLE t' --database a headgate migration logs <id>", "two commands"),
        ("headgate migration submit 'ALTER TABLE t ADD c int' --tool-option --max-load=Threads_running=50", None),
        ("headgate migration submit ALTER TABLE t --database a", "are too many"),
        ("headgate feed resume migration-<8 characters>-back", None),
        ("headgate feed resume --from", None),
        ("headgate topic tail dispatch -o json | jq -c '.[] | x'", None),
        ("headgate migration cancel|retry <id>", None),
        ("headgate migration cancel m1 m2", "are too many"),
    ],
)  # fmt: skip
def test_a_line_that_is_more_than_one_command_is_found(text: str, why: str | None) -> None:
    found = why_not_one_command(text)
    assert found is None if why is None else why in (found or "")


def test_a_command_is_not_in_prose_where_a_reader_cannot_see_its_lines() -> None:
    found = [(page, line) for page, line in prose() if re.match(r"headgate [a-z]+ ", line)]
    assert not found, "code that is indented by four spaces is prose after a list: put a sentence between"


def test_commands_are_in_fences() -> None:
    """Blocks that are only indented are not read by the tests of this file."""
    is_command = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:headgate|make) ", re.MULTILINE)
    assert [(page, text) for page, text in indented() if is_command.search(text)] == []


@pytest.mark.parametrize(("page", "target"), TARGETS)
def test_a_target_exists(page: Path, target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"{page.name}: make {target}"


@cache
def options_of(*path: str) -> frozenset[str]:
    """The options of the longest beginning of ``path`` that is a command; the first word must be one."""
    command: Any = get_command(app)
    for depth, name in enumerate(path):
        found = command.get_command(None, name) if hasattr(command, "get_command") else None
        assert found or depth, f"headgate {name}: no such command"
        if found is None:
            break
        command = found
    options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    return frozenset(options | {"--help"})


SHELL: Final = [
    (page.stem, block.text)
    for page in sorted(TUTORIALS.glob("*.md"))
    for block in blocks_of(page)
    if block.language == "sh"
]
"""tests/e2e/test_tutorials.py runs them."""


@pytest.mark.parametrize(("page", "text"), SHELL)
def test_a_block_of_a_tutorial_is_one_that_a_shell_can_run(page: str, text: str) -> None:
    parsed = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, ""), page


def test_tutorials_have_no_other_blocks_than_commands_and_their_output() -> None:
    for page in sorted(TUTORIALS.glob("*.md")):
        found = blocks_of(page)
        assert {block.language for block in found} == {"sh", "text"}, page
        for before, block in pairwise(found):
            assert (before.language, block.language) != ("text", "text"), page
