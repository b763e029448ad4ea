"""Fixtures for every test; where the broker and the database come from is said in fixtures/services.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["fixtures.services"]
