"""Kafka clusters that let in no stranger, as sinks: by password and by certificate, and what is wrong with either."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from headgate.config.sink_spec import SinkSpec
from headgate.eventlog.decisions import Decision
from headgate.eventlog.log import Partition
from headgate.eventlog.markers import write_markers
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, SinkRefusedError, SinkSilentError
from headgate.sinks.kafka import target
from headgate.sinks.kafka.progress import PROGRESS_TOPIC
from headgate.sinks.kafka.target import target_of
from headgate.sinks.registry import open_sink
from headgate.sinks.registry import target_of as registry_target
from integration.cli.guarded import SCRAM, GuardedKafka, granted, remember
from integration.sinks.contract import upsert
from integration.sinks.kafka_bench import records_of

pytestmark = pytest.mark.integration

USER = "agent"
SHOP = FeedIdentity("other/headgate.", "0-7", "shop")
LOGIN = f"sasl.mechanism=PLAIN&sasl.username={USER}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    guarded = GuardedKafka(tmp_path_factory.mktemp("guarded"))
    with guarded.kafka:
        rights = (
            (ResourceType.TOPIC, "*", AclOperation.ALL),
            (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.ALL),
            (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
        )
        granted(
            guarded.kafka,
            [
                AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", what, AclPermissionType.ALLOW)
                for kind, name, what in rights
            ],
        )
        yield guarded


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: GuardedKafka) -> Path:
    monkeypatch.setattr(target, "_targets", {})  # a process keeps its connections, and each test is one
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("HEADGATE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    (tmp_path / "password").write_text(f"secret of {USER}\n", encoding="utf-8")
    (tmp_path / "key.pem").write_bytes(guarded.papers.key.read_bytes())
    return tmp_path


def connection(secrets: Path, address: str, **further: object) -> SinkSpec:
    events = {"kind": "kafka", "address": address, "use": ["sink"], **further}
    file = secrets / "connections.yaml"
    file.write_text(yaml.safe_dump({"connections": {"events": events}}), encoding="utf-8")
    return SinkSpec(type="kafka", connection="events")


def by_password(secrets: Path, guarded: GuardedKafka, ca: Path | None = None) -> SinkSpec:
    tls = {"ca_file": str(ca or guarded.papers.ca)}
    address = f"kafka://{guarded.by_password_with_tls}?{LOGIN}"
    return connection(secrets, address, password_file="password", tls=tls)


def check(spec: SinkSpec) -> None:
    with closing(open_sink(spec)) as sink:
        sink.check(["public.orders"], SHOP)


def write(guarded: GuardedKafka, spec: SinkSpec, table: str) -> None:
    claim = Claim(SHOP, table, "shop.public.orders", Epoch(3, 1), 0, {0: 5})
    with closing(open_sink(spec)) as sink:
        sink.prepare(claim, 1)  # type: ignore[attr-defined]
        sink.claim(claim)
        with closing(sink.writer()) as writer:
            writer.apply(ChangeBatch(claim, {0: OffsetRange(5, 6)}, [upsert(5, 1, "a")]))
    assert records_of(guarded.kafka.bootstrap, table) == [(0, b'{"id":1}', b'{"id":1,"value":"a"}')]


def test_records_are_written_by_password_over_tls(guarded: GuardedKafka, secrets: Path) -> None:
    write(guarded, by_password(secrets, guarded), "copy.by-password")


@pytest.mark.parametrize("mechanism", SCRAM)
def test_records_are_written_by_a_password_that_the_cluster_keeps(
    guarded: GuardedKafka, secrets: Path, mechanism: str
) -> None:
    remember(guarded.kafka, USER, f"secret of {USER}")
    tls = {"ca_file": str(guarded.papers.ca)}
    address = f"kafka://{guarded.by_password_with_tls}?sasl.mechanism={mechanism}&sasl.username={USER}"
    spec = connection(secrets, address, password_file="password", tls=tls)
    table = f"copy.{mechanism}"
    write(guarded, spec, table)
    ends_markers(spec, table)


def ends_markers(spec: SinkSpec, table: str) -> None:
    """The other client, which ends transactions that a broker has lost, gets in as well."""
    transactional_id = f"{PROGRESS_TOPIC}.holder.{table}"
    for decision in Decision:
        write_markers(target_of(registry_target(spec)).connection, transactional_id, [Partition(table, 0)], decision)


def test_records_are_written_by_certificate(guarded: GuardedKafka, secrets: Path) -> None:
    papers = guarded.papers
    tls = {"ca_file": str(papers.ca), "certificate_file": str(papers.chain), "key_file": "key.pem"}
    spec = connection(secrets, f"kafka://{guarded.by_certificate}", tls=tls)
    write(guarded, spec, "copy.by-certificate")
    ends_markers(spec, "copy.by-certificate")


def test_a_feed_can_name_all_of_it_without_a_connection(guarded: GuardedKafka, secrets: Path) -> None:
    dsn = f"kafka://{guarded.by_password}?security.protocol=SASL_PLAINTEXT&{LOGIN}"
    write(guarded, SinkSpec(type="kafka", dsn=dsn, password_file=secrets / "password"), "copy.by-address")


def test_a_wrong_password_is_named_until_the_file_has_the_right_one(guarded: GuardedKafka, secrets: Path) -> None:
    spec = by_password(secrets, guarded)
    password = secrets / "password"
    right = password.read_text(encoding="utf-8")
    password.write_text("hush", encoding="utf-8")
    spec = connection(
        secrets,
        f"kafka://{guarded.by_password_with_tls}?{LOGIN}",
        password_file="password",
        tls={"ca_file": str(guarded.papers.ca)},
    )
    with closing(open_sink(spec)) as sink:
        with pytest.raises(SinkRefusedError, match=r"refused the connection.*[Aa]uthentication.*password") as refused:
            sink.check(["public.orders"], SHOP)
        assert "hush" not in str(refused.value)
        password.write_text(right, encoding="utf-8")
        sink.check(["public.orders"], SHOP)


def test_a_certificate_of_a_stranger_is_not_trusted(guarded: GuardedKafka, secrets: Path) -> None:
    with pytest.raises(SinkRefusedError, match=r"refused the connection.*certificate"):
        check(by_password(secrets, guarded, guarded.papers.stranger_ca))


def test_plain_text_where_tls_is_expected_is_no_answer(guarded: GuardedKafka, secrets: Path) -> None:
    with pytest.raises(SinkSilentError, match=r"no answer from Kafka at .*security properties"):
        check(connection(secrets, f"kafka://{guarded.by_certificate}"))


def test_a_ca_file_that_does_not_exist_is_named(guarded: GuardedKafka, secrets: Path) -> None:
    why = r"ssl\.ca\.location of address of connection events: cannot read file .*nowhere\.pem"
    with pytest.raises(SinkRefusedError, match=why):
        check(by_password(secrets, guarded, secrets / "nowhere.pem"))


def test_a_host_that_is_not_allowed_is_named(
    guarded: GuardedKafka, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = by_password(secrets, guarded)
    monkeypatch.setenv("HEADGATE_ALLOWED_HOSTS", "elsewhere")
    with pytest.raises(SinkRefusedError, match=r"address of connection events names host .*HEADGATE_ALLOWED_HOSTS"):
        check(spec)


def test_a_password_outside_of_the_folder_for_secrets_is_refused(
    guarded: GuardedKafka, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = by_password(secrets, guarded)
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(secrets / "secrets"))
    (secrets / "secrets").mkdir()
    spec = connection(
        secrets,
        f"kafka://{guarded.by_password_with_tls}?{LOGIN}",
        password_file=str(secrets / "password"),
        tls={"ca_file": str(guarded.papers.ca)},
    )
    with pytest.raises(SinkRefusedError, match=r"password_file of connection events .*folder for secrets"):
        check(spec)
