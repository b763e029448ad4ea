"""The log of a service that goes on writing it."""

import json
from pathlib import Path
from typing import Any

__all__ = ["log_lines"]


def log_lines(file: Path) -> list[dict[str, Any]]:
    """What a service has logged as JSON, but for a line that is still being written."""
    whole = file.read_bytes().rpartition(b"\n")[0].decode("utf-8")
    return [json.loads(line) for line in whole.split("\n") if line.startswith("{") and line.endswith("}")]
