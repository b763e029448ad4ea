"""What benches of change logs share: a cluster's settings, and an owner of generations in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from headgate.generation.shell.tail import GenerationTail
from headgate_lab.benchmarks.parts import BenchError

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
def owner_of(settings: BenchCluster) -> Iterator[None]:
    """`headgate serve generation`, for as long as this lasts."""
    command = [sys.executable, "-m", "headgate", "serve", "generation", "--bootstrap", settings.bootstrap]
    command += ["--cluster", settings.cluster, "--http-port", "0", "--log-level", "error"]
    process = subprocess.Popen(command, env={**os.environ, "HEADGATE_REPLICATION_FACTOR": "1"})
    try:
        yield
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def await_owner(tail: GenerationTail) -> None:
    """Nothing can be asked before an owner has announced itself, and with it the level of what is written."""
    deadline = time.monotonic() + WAIT_SECONDS
    while tail.state.owner_rev < 0:
        if time.monotonic() > deadline:
            raise BenchError(f"`headgate serve generation` has not become an owner within {WAIT_SECONDS:g} s")
        tail.follow(0.2)
