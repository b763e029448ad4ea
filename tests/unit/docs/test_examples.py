"""Examples in the documents: feeds are accepted by the parser of feeds, commands and their options exist."""

import re
import shlex
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.main import get_command

from headgate.cli.main import app
from headgate.config.feed import FeedSpec, load_feed
from support.pages import PAGES, ROOT, TUTORIALS, blocks, blocks_of

FEEDS: Final = [(page, text) for page, text in blocks("yaml") if text.startswith("feed:")]
SHOWN: Final = {
    (page, command.split("#")[0].strip())
    for language in ("", "bash", "sh")
    for page, text in blocks(language)
    for line in text.splitlines()
    for command in re.findall(r"(?:^|\s{2,}|(?<=agent-1 ))(headgate [a-z].*?)(?=\s{2,}|$)", line)
}
NAMED: Final = {
    (path.name, command)
    for path in [*PAGES, *sorted((ROOT / "services").rglob("*.py"))]
    for command in re.findall(r"(?<!`)`(headgate [a-z][^`{}|…]*)`(?!`)", path.read_text(encoding="utf-8"))
}
"""In a sentence, of a page or of an error."""
COMMANDS: Final = sorted(SHOWN | NAMED)
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
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert option in known, f"{page}: {command}: no option {option}"


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
