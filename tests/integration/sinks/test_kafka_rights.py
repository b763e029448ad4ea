"""A target cluster with an authorizer: the rights that the page lists suffice, and one that is missing is named."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from headgate.app.access_rules import access_rule
from headgate.config.rights import Topics, grants
from headgate.config.sink_spec import SinkSpec
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    OffsetRange,
    Sink,
    SinkRefusedError,
    SinkWriter,
)
from headgate.sinks.kafka import target
from headgate.sinks.registry import open_sink
from integration.cli.guarded import TARGETS, GuardedKafka, granted, revoked
from integration.sinks.contract import upsert
from integration.sinks.kafka_bench import records_of
from support.waiting import eventually

pytestmark = pytest.mark.integration

USER = "sink"
SHOP = FeedIdentity("other/headgate.", "0-7", "shop")
TOPIC = "copy.orders"


@pytest.fixture(autouse=True)
def process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_targets", {})


def claim(n: int, table: str = TOPIC) -> Claim:
    return Claim(SHOP, table, "shop.public.orders", Epoch(3, n), 0, {0: 0})


def batch(of: Claim, first: int, count: int) -> ChangeBatch:
    changes = [upsert(first + number, first + number, "a") for number in range(count)]
    return ChangeBatch(of, {0: OffsetRange(first, first + count)}, changes)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    guarded = GuardedKafka(tmp_path_factory.mktemp("guarded"))
    with guarded.kafka:
        yield guarded


def rule(kind: ResourceType, name: str, what: AclOperation) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if name.endswith(".") else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{USER}", "*", what, AclPermissionType.ALLOW)


TRANSACTIONAL = ResourceType.TRANSACTIONAL_ID
RIGHTS = [access_rule(each, f"User:{USER}") for each in grants("headgate", {Topics.TARGETS: [TARGETS]}, [USER])]
"""As docs/reference/rights.md lists them."""


@pytest.fixture
def spec(guarded: GuardedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkSpec:
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    (tmp_path / "password").write_text(f"secret of {USER}", encoding="utf-8")
    granted(guarded.kafka, RIGHTS)
    login = f"security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username={USER}"
    return SinkSpec(type="kafka", dsn=f"kafka://{guarded.by_password}?{login}", password_file=tmp_path / "password")


def write(spec: SinkSpec, mine: Claim) -> None:
    """Three records, from the check of a new feed on."""
    with closing(open_sink(spec)) as sink:
        sink.check([mine.table], SHOP)
        sink.prepare(mine, 1)  # type: ignore[attr-defined]
        assert sink.claim(mine) == {0: 0}
        with closing(sink.writer()) as writer:
            writer.apply(batch(mine, 0, 3))


def test_the_rights_of_the_page_suffice(guarded: GuardedKafka, spec: SinkSpec) -> None:
    table = "copy.allowed"
    write(spec, claim(1, table))
    assert len(records_of(guarded.kafka.bootstrap, table)) == 3


@pytest.mark.parametrize(
    ("what", "lacking"),
    [
        ("write", rule(ResourceType.TOPIC, "copy.", AclOperation.WRITE)),
        ("transactional-id", rule(TRANSACTIONAL, "headgate-sink-progress.", AclOperation.WRITE)),
        ("progress", rule(ResourceType.TOPIC, "headgate-sink-progress", AclOperation.WRITE)),
    ],
)
def test_a_right_that_is_taken_away_under_way_is_named_and_nothing_is_lost_or_doubled(
    guarded: GuardedKafka, spec: SinkSpec, what: str, lacking: AclBinding
) -> None:
    table = f"copy.taken.{what}"
    with closing(open_sink(spec)) as sink:
        mine = claim(1, table)
        sink.prepare(mine, 1)  # type: ignore[attr-defined]
        sink.claim(mine)
        with closing(sink.writer()) as writer:
            writing = Writing(writer, mine)
            assert not writing.is_refused()
            revoked(guarded.kafka, lacking)
            try:
                # Brokers and clients hear of it within moments.
                eventually(writing.is_refused, "it is refused")
            finally:
                granted(guarded.kafka, [lacking])
        assert "Give this user the right" in writing.why
        again = claim(2, table)
        reached = eventually(lambda: claimed(sink, again), "the right counts again") or {}
        assert reached == {0: writing.count}
        with closing(sink.writer()) as writer:
            writer.apply(batch(again, writing.count, 3))
    keys = [key for _, key, _ in records_of(guarded.kafka.bootstrap, table)]
    assert keys == [b'{"id":%d}' % number for number in range(writing.count + 3)]


class Writing:
    """One change after the other, until one is refused, and why it was."""

    def __init__(self, writer: SinkWriter, mine: Claim) -> None:
        self._writer = writer
        self._claim = mine
        self.count = 0
        self.why = ""

    def is_refused(self) -> bool:
        try:
            self._writer.apply(batch(self._claim, self.count, 1))
        except SinkRefusedError as error:
            self.why = str(error)
            return True
        self.count += 1
        return False


def claimed(sink: Sink, mine: Claim) -> Positions | None:
    try:
        return sink.claim(mine)
    except SinkRefusedError:
        return None


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        (rule(ResourceType.TOPIC, "copy.", AclOperation.CREATE), r"creating topic copy\.create"),
        (rule(ResourceType.TOPIC, "copy.", AclOperation.WRITE), r"copy\.write"),
        (rule(TRANSACTIONAL, "headgate-sink-progress.", AclOperation.WRITE), r"transactional\.id"),
    ],
    ids=["create", "write", "transactional-id"],
)
def test_a_right_that_is_missing_is_named_and_nothing_is_written(
    guarded: GuardedKafka, spec: SinkSpec, lacking: AclBinding, why: str, request: pytest.FixtureRequest
) -> None:
    table = f"copy.{request.node.callspec.id}"
    revoked(guarded.kafka, lacking)
    with pytest.raises(SinkRefusedError, match=rf"{why}.*Give this user the right"):
        write(spec, claim(1, table))
    granted(guarded.kafka, [lacking])
    write(spec, claim(2, table))
    assert len(records_of(guarded.kafka.bootstrap, table)) == 3
