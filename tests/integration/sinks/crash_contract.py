"""A writer dies, or freezes and wakes up too late, at every named point of the commit path: subclass, give ``site``.

The table is that of the contract. What it went through is written down by a trigger of the test's own, so that a change
applied twice shows, whatever the sink's own bookkeeping says.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    OffsetRange,
    Sink,
    SinkFencedError,
    SinkUnavailableError,
)
from headgate_lab.chaos.proxy import Link, Proxies
from integration.sinks.contract import upsert
from support import build

WRITER = Path(__file__).with_name("crashing_writer.py")
SECONDS_MAX = scaled_seconds(120.0)

POINTS = tuple(point for point in CrashPoint if point not in (CrashPoint.ALTERED, CrashPoint.COMPACTED))
"""Those that a writer passes. Tables are altered by an agent: tests/integration/cli/test_evolving_tables.py."""

HISTORY = ["a", "b", "c"]
"""What row 1 goes through, one offset each, from 5 on."""


class Site(Protocol):
    """A sink with the contract's table, empty, and an independent record of what happens to it."""

    spec: dict[str, object]
    sink: Sink
    table: str
    port: int

    def through(self, port: int) -> dict[str, object]:
        """The spec of the same sink, reached on another port of this machine."""
        ...

    def history(self) -> list[str]:
        """Every value that row 1 was given, in the order of the commits, noted by a trigger."""
        ...


def claim_on(site: Site, n: int) -> Claim:
    identity = FeedIdentity("cluster-a", "0-7", "shop")
    return build.claim(identity=identity, table=site.table, topic="shop.public.orders", epoch=Epoch(3, n), start={0: 5})


def batches_of(claim: Claim, position: int = 5) -> list[ChangeBatch]:
    """The changes from ``position`` on, a batch each."""
    return [
        ChangeBatch(claim, {0: OffsetRange(offset, offset + 1)}, [upsert(offset, 1, value)])
        for offset, value in enumerate(HISTORY, 5)
        if offset >= position
    ]


def write_rest(site: Site, claim: Claim) -> None:
    """As the next holder: from the sink's positions on, whatever they are."""
    writer = site.sink.writer()
    for batch in batches_of(claim, site.sink.claim(claim)[0]):
        writer.apply(batch)
    writer.close()


def hexed(value: object) -> str:
    return msgspec.msgpack.encode(value).hex()


@contextmanager
def writer_at(
    point: CrashPoint, site: Site, armed: ArmedPoints, spec: dict[str, object] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A process that claims and writes all changes under epoch 1, and stands still at ``point``."""
    claim = claim_on(site, 1)
    arguments = [json.dumps(spec or site.spec), hexed(claim), hexed(batches_of(claim))]
    armed.arm(point)
    environment = os.environ | armed.variables
    with subprocess.Popen(
        [sys.executable, str(WRITER), *arguments], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert armed.await_reached(point, SECONDS_MAX) == process.pid
            yield process
        finally:
            process.kill()


class CrashContract:
    """Whatever happens to a writer, and wherever: its successor goes on exactly where it stopped."""

    @pytest.fixture
    def site(self) -> Site:
        raise NotImplementedError

    @pytest.fixture
    def armed(self, tmp_path: Path) -> ArmedPoints:
        return ArmedPoints(tmp_path / "points")

    @pytest.mark.parametrize("point", POINTS)
    def test_a_killed_writer_loses_and_doubles_nothing(self, site: Site, armed: ArmedPoints, point: CrashPoint) -> None:
        with writer_at(point, site, armed) as process:
            process.send_signal(signal.SIGKILL)
        write_rest(site, claim_on(site, 2))
        assert site.history() == HISTORY
        assert site.sink.positions(claim_on(site, 2)) == {0: 8}

    @pytest.mark.parametrize("point", POINTS)
    def test_a_frozen_writer_wakes_up_to_an_error_from_the_sink(
        self, site: Site, armed: ArmedPoints, point: CrashPoint
    ) -> None:
        with writer_at(point, site, armed) as process:
            write_rest(site, claim_on(site, 2))
            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate(timeout=SECONDS_MAX)
        assert said.split()[-1] == SinkFencedError.code
        assert site.history() == HISTORY
        assert site.sink.positions(claim_on(site, 2)) == {0: 8}

    def test_a_writer_that_nobody_overtook_goes_on_wherever_it_stood(self, site: Site, armed: ArmedPoints) -> None:
        first, *others = POINTS
        with writer_at(first, site, armed) as process:
            for point in others:
                armed.arm(point)
                process.send_signal(signal.SIGCONT)
                assert armed.await_reached(point, SECONDS_MAX) == process.pid
            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate(timeout=SECONDS_MAX)
        assert said == "done"
        assert site.history() == HISTORY

    def test_a_writer_whose_commit_nobody_confirmed_finds_out_and_goes_on(self, site: Site, armed: ArmedPoints) -> None:
        claim = claim_on(site, 1)
        with closing(Proxies()) as proxies:
            proxy = proxies.open(site.port)
            with writer_at(CrashPoint.BEFORE_COMMIT, site, armed, site.through(proxy.port)) as process:
                proxies.change(proxy, Link.DEAF)
                process.send_signal(signal.SIGCONT)
                deadline = time.monotonic() + SECONDS_MAX
                while site.sink.positions(claim) != {0: 6}:
                    assert time.monotonic() < deadline, "the commit did not arrive"
                proxies.change(proxy, Link.OPEN)
                said, _ = process.communicate(timeout=SECONDS_MAX)
        assert said == SinkUnavailableError.code
        assert site.history() == HISTORY
        assert site.sink.positions(claim) == {0: 8}
