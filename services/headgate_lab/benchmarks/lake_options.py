"""What ``headgate bench lake`` can be asked for. The bench itself needs packages that are optional."""

from importlib.util import find_spec
from typing import Final

import msgspec

from headgate.provisioning.installing import installing
from headgate_lab.benchmarks.parts import BenchError

__all__ = ["KIND_NAMES", "LakeOptions", "check_installed"]

KIND_NAMES: Final = ("delta", "iceberg")

NEEDED: Final = ("deltalake", "pyiceberg")


class LakeOptions(msgspec.Struct, frozen=True):
    """``rounds`` interleaved runs of each side over ``changes``, of which each commit has ``batch``.

    ``keys``: rows that the table has before the updates and deletes. ``commits``: of the test whether they grow slower.
    """

    changes: int = 1_000_000
    keys: int = 200_000
    batch: int = 50_000
    commits: int = 500
    rounds: int = 1
    kinds: tuple[str, ...] = KIND_NAMES
    partitions: int = 4
    seed: int = 20261129


def check_installed() -> None:
    """Raise BenchError without the libraries of lakes."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise BenchError(f"{missing[0]} is not installed. Run: {installing('delta,iceberg')}")
