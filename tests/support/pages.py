"""The pages of the documentation, and the fenced blocks in them."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[2]
TUTORIALS: Final = ROOT / "docs" / "tutorials"
HOW_TOS: Final = ROOT / "docs" / "howto"
PAGES: Final = [
    ROOT / "README.md",
    *(page for folder in (ROOT / "docs", TUTORIALS, HOW_TOS) for page in sorted(folder.glob("*.md"))),
]

_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Every block of a page, in order; those of lists without their indentation."""
    return [
        Block(language, textwrap.dedent(text))
        for _indent, language, text in _BLOCK.findall(page.read_text(encoding="utf-8"))
    ]


def indented() -> Iterator[tuple[str, str]]:
    """(page, text) of every block that is code because it is indented, on all pages."""
    for page in PAGES:
        for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
            if token.type == "code_block":
                yield page.name, token.content


def prose() -> Iterator[tuple[str, str]]:
    """(page, line) of every line of prose, on all pages."""
    for page in PAGES:
        for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
            if token.type == "inline":
                yield from ((page.name, line) for line in token.content.splitlines())


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """(page, text) of every block of the language, on all pages."""
    for page in PAGES:
        yield from ((page.name, block.text) for block in blocks_of(page) if block.language == language)
