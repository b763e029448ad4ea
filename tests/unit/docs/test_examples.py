"""Examples in the documents: feeds are accepted by the parser of feeds, commands and their options exist."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command

from headgate.cli.main import app
from headgate.config.feed import FeedSpec, FeedSpecError, load_feed
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


def test_feeds_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "feed.yaml"
    refused = []
    for page, text in FEEDS:
        path.write_text(text, encoding="utf-8")
        try:
            assert isinstance(load_feed(path), FeedSpec)
        except FeedSpecError as error:
            refused.append(f"{page}: {error}\n{text}")
    assert refused == []


def test_the_readme_has_a_feed() -> None:
    assert "README.md" in {page for page, _ in FEEDS}


def test_commands_exist_with_their_options() -> None:
    assert COMMANDS, "the pages show some"
    assert [
        f"{page}: {command}: {found}"
        for page, command in COMMANDS
        for found in (*unknown_options(command), why_not_one_command(command))
        if found
    ] == []


def unknown_options(command: str) -> Iterator[str]:
    words = shlex.split(command)[1:]
    names = [word for word in words if re.fullmatch(r"[a-z]+(\|[a-z]+)*", word)]
    given = [word for before, word in pairwise(["", *words]) if before != TAKES_OPTION and word.startswith("--")]
    for verb in names[1].split("|") if len(names) > 1 and "|" in names[1] else [None]:
        known = options_of(names[0], verb) if verb else options_of(*names)
        if not known:
            yield f"no command {names[0]}"
        yield from (f"no option {option}" for word in given if (option := word.partition("=")[0]) not in known)


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


def test_targets_exist() -> None:
    existing = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [f"{page.name}: make {target}" for page, target in TARGETS if target not in existing] == []
    assert TARGETS


@cache
def options_of(*path: str) -> frozenset[str]:
    """The options of the longest beginning of ``path`` that is a command; none if its first word is none."""
    command: Any = get_command(app)
    for depth, name in enumerate(path):
        found = command.get_command(None, name) if hasattr(command, "get_command") else None
        if found is None and not depth:
            return frozenset()
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


def test_blocks_of_tutorials_are_those_that_a_shell_can_run() -> None:
    for page, text in SHELL:
        parsed = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
        assert (parsed.returncode, parsed.stderr) == (0, ""), f"{page}: {text}"
    assert SHELL


def test_tutorials_have_no_other_blocks_than_commands_and_their_output() -> None:
    for page in sorted(TUTORIALS.glob("*.md")):
        found = blocks_of(page)
        assert {block.language for block in found} == {"sh", "text"}, page
        for before, block in pairwise(found):
            assert (before.language, block.language) != ("text", "text"), page
