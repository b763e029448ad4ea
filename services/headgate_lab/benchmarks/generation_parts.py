"""What benches of change logs share: a cluster's settings, and an owner of generations in a process of its own."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headgate.generation.shell.tail import GenerationTail
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.parts.processes import ServiceProcess, stop_all

WAIT_SECONDS: Final = 180.0
"""For the owner's first campaign, for a hundred writers to be admitted, for the last change to be read."""


class BenchCluster(msgspec.Struct, frozen=True):
    """What the log wants to know (eventlog/topics.py)."""

    bootstrap: str
    cluster: str
    shards: int = 1
    replication_factor: int = 1
    cloudevents: bool = False
    kafka: dict[str, str] = {}


@contextmanager
def owner_of(settings: BenchCluster, folder: Path) -> Iterator[None]:
    """`headgate serve generation`, for as long as this lasts; its log is in the folder."""
    given = ("--bootstrap", settings.bootstrap, "--cluster", settings.cluster)
    arguments = ("serve", "generation", *given, "--http-port", "0", "--log-level", "error")
    owner = ServiceProcess(f"owner-{settings.cluster}", arguments, {"HEADGATE_REPLICATION_FACTOR": "1"}, folder)
    try:
        yield
    finally:
        stop_all([owner])


def await_owner(tail: GenerationTail) -> None:
    """Nothing can be asked before an owner has announced itself, and with it the level of what is written."""
    deadline = time.monotonic() + WAIT_SECONDS
    while tail.state.owner_rev < 0:
        if time.monotonic() > deadline:
            raise BenchError(f"`headgate serve generation` has not become an owner within {WAIT_SECONDS:g} s")
        tail.follow(0.2)
