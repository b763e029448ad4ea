"""Several shards on the real broker: processes share them, and one that is killed moves only its own."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings, load_settings
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.snapshot import read_snapshot
from headgate.eventlog.topics import create_topics
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import LEASE_SECONDS, Service, headgate
from support.waiting import eventually

pytestmark = pytest.mark.integration

SHARDS = 4

SETTLED_SECONDS_MAX = 400.0
"""Three processes that start, and elections that must be over for two leases: minutes where others keep the machine."""

COORDINATORS = 3

Owners = dict[int, tuple[str, int | None]]


@pytest.fixture
def four(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLog]:
    """The log of a cluster with four shards."""
    monkeypatch.setenv("HEADGATE_SHARDS", str(SHARDS))
    ours = load_settings({})
    create_topics(ours)
    log = open_log(ours)
    yield log
    log.close()


def _owners(log: KafkaLog) -> Owners:
    snapshot = read_snapshot(log)
    found = {shard: snapshot.owner(shard) for shard in range(SHARDS)}
    return {shard: (owner.owner_id, owner.owner_rev) for shard, owner in found.items() if owner is not None}


def _shared(log: KafkaLog, services: list[Service]) -> Owners | None:
    """The owners, once every shard has one and the shares of the living are even."""
    owners = _owners(log)
    names = [_pid(name) for name, owner_rev in owners.values() if owner_rev is not None]
    shares = [names.count(service.process.pid) for service in services]
    return owners if sum(shares) == SHARDS and max(shares) - min(shares) <= 1 else None


class _Settled:
    """The owners, once their shares have been even and the same for two leases: elections of the start are over."""

    def __init__(self, log: KafkaLog, services: list[Service]) -> None:
        self._log, self._services = log, services
        self._seen: Owners | None = None
        self._since = time.monotonic()

    def __call__(self) -> Owners | None:
        owners = _shared(self._log, self._services)
        if owners != self._seen:
            self._seen, self._since = owners, time.monotonic()
        return owners if owners is not None and time.monotonic() - self._since > 2 * LEASE_SECONDS else None


def _pid(owner_id: str) -> int:
    return int(owner_id.rpartition("-")[2])


@pytest.mark.timeout(scaled_seconds(4 * SETTLED_SECONDS_MAX))
def test_processes_share_the_shards_and_a_killed_one_moves_only_its_own(
    four: KafkaLog, serve: Callable[..., Service], record_property: Callable[[str, Any], None]
) -> None:
    services = [serve(f"c{number}", "coordinator") for number in range(COORDINATORS)]
    before = eventually(_Settled(four, services), "the shards are shared evenly", SETTLED_SECONDS_MAX)

    victim, *left = services
    victim.process.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    lost = {shard for shard, (name, _) in before.items() if _pid(name) == victim.process.pid}
    assert lost

    def taken_over() -> Owners | None:
        owners = _shared(four, left)
        return owners if owners is not None and all(owners[shard] != before[shard] for shard in lost) else None

    after = eventually(taken_over, "the killed one's shards have other owners", SETTLED_SECONDS_MAX)
    record_property("take_over_seconds", round(time.monotonic() - killed_at, 2))
    _only_these_moved(lost, before, after, left)
    eventually(lambda: all(s.get("/readyz")[0] == 200 for s in left), "all shards are stood for", SETTLED_SECONDS_MAX)
    _ask_every_shard(four, left, eventually(_Settled(four, left), "they are shared evenly again", SETTLED_SECONDS_MAX))


def _only_these_moved(moved: set[int], before: Owners, after: Owners, services: list[Service]) -> None:
    """Every other shard has its owner still, unless that one gave it away by itself to even out the shares."""
    falls = _falls(services)
    given = {shard for shard, reason in falls if reason.startswith("gave the shard to")}
    kept = set(before) - moved - given
    assert {shard: after[shard] for shard in kept} == {shard: before[shard] for shard in kept}, falls


def _falls(services: list[Service]) -> list[tuple[int, str]]:
    """Of which shard a role fell why, by the processes' logs."""
    lines = [line for service in services for line in service.lines()]
    return [(line["shard"], line["last_error"]) for line in lines if line.get("last_error")]


def _ask_every_shard(log: KafkaLog, services: list[Service], before: Owners) -> None:
    """Every shard answers, and the command gathers what they say; one shard can be asked alone."""
    everybody = dict.fromkeys(range(SHARDS), sorted(service.process.pid for service in services))

    def listed() -> dict[int, list[int]]:
        rows = json.loads(headgate("coordinator", "list", "-o", "json").stdout)
        return {row["shard"]: sorted(map(_pid, filter(None, [row["owner"], *row["standbys"]]))) for row in rows}

    eventually(lambda: listed() == everybody, lambda: f"each owns or stands by: {listed()}, and not {everybody}")

    refused = headgate("agent", "drain", "nobody")
    assert refused.exit_code == ExitCode.NOT_FOUND
    assert refused.stderr.count("agent 'nobody' is not alive") == 1

    resigned = headgate("coordinator", "resign", "--shard", "2")
    assert resigned.exit_code == 0, resigned.stderr
    after = eventually(
        lambda: owners if (owners := _owners(log)).get(2, before[2])[1] not in (None, before[2][1]) else None,
        "shard 2 has another owner",
    )
    assert after[2][0] != before[2][0], _falls(services)
    _only_these_moved({2}, before, after, services)
