"""``python tests/support/call_trace/summary.py FILE FIRST [HAS]``: how calls go through modules and folders.

Divides a file of sitecustomize.py at each call of FIRST, keeps the parts with a call of HAS, and prints the shortest:
calls, visits of modules and of folders, and how many of the visits return to one that had been left.
"""

import sys
from collections.abc import Iterable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

_DIVIDED: Final = ("agent", "coordinator", "generation", "migration")


def _visits(places: Iterable[str]) -> list[str]:
    return [place for place, _ in groupby(places)]


def _folder(module: str) -> str:
    first, *rest = module.split(".")
    return f"{first}/{rest[0]}" if first in _DIVIDED and rest else first


def _said(what: str, visits: list[str]) -> str:
    known = len(set(visits))
    return f"{what}: {len(visits)} visits of {known}, {len(visits) - known} returns\n  {' '.join(visits)}"


def summary(text: str, first: str, has: str) -> str:
    """Of the shortest part. Raises ValueError if there is none."""
    calls = text.split()
    starts = [*(index for index, call in enumerate(calls) if call == first), len(calls)]
    parts = [calls[start:end] for start, end in pairwise(starts)]
    kept = min((part for part in parts if any(has in call for call in part)), key=len)
    modules = _visits(call.partition(":")[0] for call in kept)
    return f"{len(kept)} calls\n{_said('modules', modules)}\n{_said('folders', _visits(map(_folder, modules)))}"


if __name__ == "__main__":
    sys.stdout.write(summary(Path(sys.argv[1]).read_text(), sys.argv[2], (sys.argv[3:] or [""])[0]) + "\n")
