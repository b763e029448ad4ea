"""A cluster of its own for each test: the command line's fixtures; and the examples, run as a user runs them."""

import subprocess
import sys
from pathlib import Path

from integration.cli.conftest import log, serve, settings

__all__ = ["example", "log", "serve", "settings"]

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
