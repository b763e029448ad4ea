"""Every script in this directory does what its trace says; script.py says how."""

from pathlib import Path

import pytest

from scenarios.switches.script import play

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_switch_script(path: Path, request: pytest.FixtureRequest) -> None:
    played = play(path)
    if request.config.getoption("--rewrite-scenarios", default=False):
        path.write_text(played, encoding="utf-8")
    assert played == path.read_text(encoding="utf-8")
