"""The pages of the documentation, and the fenced blocks in them."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

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


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """(page, text) of every block of the language, on all pages."""
    for page in PAGES:
        yield from ((page.name, block.text) for block in blocks_of(page) if block.language == language)
