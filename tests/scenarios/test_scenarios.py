"""Every script in this directory does what its trace says; runner.py says how."""

from pathlib import Path

import pytest

from scenarios.runner import World
from scenarios.script import compare

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, World().play(path), request)
