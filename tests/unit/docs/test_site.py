"""The documents as a site: built without a warning, whole, and without anything from the network."""

import re
from pathlib import Path
from typing import Final

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from headgate_lab.pages import mermaid

ROOT: Final = Path(__file__).parents[3]

LOADED: Final = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?:[^\" >]*)")


def _build(folder: Path, **changed: object) -> None:
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), **changed))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mermaid, "script", lambda: b"// drawn elsewhere")
        _build(folder)
    return folder


def test_every_page_is_on_it(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    expected = {str(page).replace("README", "index") for page in pages}
    expected |= {"index.html", "CHANGELOG.html", "CONTRIBUTING.html", "SECURITY.html", "reference/commands.html"}
    assert expected <= {str(path.relative_to(site)) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    loaded = {path.name: LOADED.findall(path.read_text()) for path in site.rglob("*.html")}
    assert {name: found for name, found in loaded.items() if found} == {}
    assert (site / "mermaid.min.js").read_bytes() == b"// drawn elsewhere"
    assert "mermaid.min.js" in (site / "reference" / "imports.html").read_text()


def test_diagrams_are_left_to_the_script(site: Path) -> None:
    page = (ROOT / "docs" / "reference" / "imports.md").read_text()
    shown = (site / "reference" / "imports.html").read_text()
    assert shown.count('<pre class="mermaid">') == page.count("```mermaid") > 0


def test_links_lead_to_where_pages_are_on_the_site(site: Path) -> None:
    readme = (site / "index.html").read_text()
    assert 'href="operating.html"' in readme
    assert 'href="CONTRIBUTING.html"' in readme
    assert "docs/operating.md" not in readme


def test_a_broken_link_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mermaid, "script", lambda: b"")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "lost.md").write_text("# Lost\n[away](nowhere.md)\n")
    with pytest.raises(Abort, match="strict"):
        _build(tmp_path / "site", docs_dir=str(docs), nav=None)
