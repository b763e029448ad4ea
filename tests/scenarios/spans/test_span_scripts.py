"""Every script in this directory does what its trace says; span_script.py says how."""

from pathlib import Path

import pytest

from scenarios.script import compare
from scenarios.spans.span_script import play

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_span_script(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, play(path), request)
