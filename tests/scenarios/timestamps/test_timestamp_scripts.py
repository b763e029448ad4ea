"""Every script in this directory does what its trace says; script.py says how."""

from pathlib import Path

import pytest

from scenarios.script import compare
from scenarios.timestamps import script

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_timestamp_script(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.generation.timestamps.core.rings.CHUNK_STREAMS", script.CHUNK_STREAMS)
    monkeypatch.setattr("scenarios.switches.script.shown_other", script.shown_value)
    compare(path, script.World().play(path), request)
