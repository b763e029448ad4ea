"""Every script in this directory does what its trace says; script.py says how."""

from pathlib import Path

import pytest

from scenarios.script import compare
from scenarios.switches.script import World

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_switch_script(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, World().play(path), request)
