"""What MkDocs does differently for us: pages from outside docs/, links between them, and the script of diagrams."""

import re
from pathlib import Path
from posixpath import relpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from headgate_lab.pages import commands, mermaid

ROOT: Final = Path(__file__).parents[2]

BESIDE: Final = {name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")} | {"README.md": "index.md"}
"""Pages of the repository's own folder, by the place they have on the site."""

FENCED: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, the page of commands, and the script."""
    for name, place in BESIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, "reference/commands.md", content=commands.page()))
    files.append(File.generated(config, "mermaid.min.js", content=mermaid.script()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links lead to where pages are on the site; a link to a file that is no page becomes the file's name."""
    place = page.file.src_uri
    home = Path(str(page.file.abs_src_path)).parent

    def moved(link: re.Match[str]) -> str:
        text, name, anchor = link[1], link[2], link[3] or ""
        target = (home / name).resolve()
        if not target.is_relative_to(ROOT):
            return link[0]
        path = str(target.relative_to(ROOT))
        new = BESIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if new is None:
            return text if path in text else f"{text} (`{path}`)"
        return f"[{text}]({relpath(new, Path(place).parent.as_posix())}{anchor})"

    # Every other part is a fenced block.
    parts = FENCED.split(markdown)
    return "".join(part if odd % 2 else LINK.sub(moved, part) for odd, part in enumerate(parts))
