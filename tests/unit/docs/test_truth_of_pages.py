"""What pages list is what the code has: fixed options of feeds, services, benchmarks, and who may write which topic."""

import re
from typing import Any, Final

from typer.main import get_command

from headgate.cli.main import app
from headgate.cli.migration_way_back import WayBackState
from headgate.config.rights import RIGHTS, Resource
from headgate.coordinator.core.feeds.acceptance import FIXED
from support.pages import HOW_TOS, ROOT

DOCS: Final = ROOT / "docs"


def names_of(group: str) -> list[str]:
    command: Any = get_command(app)
    found = command.get_command(None, group)
    return list(found.list_commands(None))


def test_the_page_on_feeds_lists_every_option_that_an_update_may_not_change() -> None:
    text = (HOW_TOS / "feeds.md").read_text(encoding="utf-8")
    section = text.split("## Change a feed")[1].split("\n## ")[0]
    listed = "\n".join(line for line in section.splitlines() if line.startswith(("- `", "  `")))
    assert set(re.findall("`(.*?)`", listed)) == {".".join(path) for path in FIXED}


def test_the_page_on_operating_lists_every_service() -> None:
    table = (DOCS / "operating.md").read_text(encoding="utf-8")
    assert [name for name in names_of("serve") if f"| `headgate serve {name}` |" not in table] == []


def test_the_page_on_schema_changes_lists_what_a_way_back_can_be() -> None:
    text = " ".join((DOCS / "migrations.md").read_text(encoding="utf-8").split())
    sentence = text.split("`show` reports in `way_back` whether a revert is possible: ")[1].split(". ")[0]
    assert set(re.findall("`(.*?)`", sentence)) == {state.value for state in WayBackState}


def test_the_page_on_benchmarks_has_a_section_for_every_bench() -> None:
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    told = {name for name in names_of("bench") if f"headgate bench {name}" in page}
    assert set(names_of("bench")) - told == set()


def test_the_page_on_security_says_what_people_may_write() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for who in ("operator", "approver"):
        for right in RIGHTS:
            if right.who == who and "Write" in right.operations and isinstance(right.names, tuple):
                topics = [name for name in right.names if right.resource is Resource.TOPIC]
                for topic in topics:
                    assert f"`{topic.replace('{cluster}', '<cluster>')}` ({who}s)" in page


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    """`pip install headgate[…]` would find nothing, or the package of a stranger."""
    folders = (ROOT, DOCS, HOW_TOS)
    texts = {path: path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.md")}
    texts |= {path: path.read_text(encoding="utf-8") for path in (ROOT / "services").rglob("*.py")}
    assert [path.name for path, text in texts.items() if re.search(r"pip install '?headgate\[", text)] == []
