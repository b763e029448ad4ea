"""Addresses of Kafka clusters: one spelling, the options that are taken, and why others are not."""

from pathlib import Path

import pytest

from headgate.databases.address import SINK, Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kafka.address import address_of, parse_address
from headgate.databases.kafka.cluster import connect
from headgate.databases.kinds import CONNECTED

LOGIN = "security.protocol=SASL_SSL&sasl.mechanism=SCRAM-SHA-512&sasl.username=ann"


def test_an_address_has_one_spelling() -> None:
    one = address_of(f"kafka://B:9092,a:9092/?{LOGIN}&ssl.ca.location=/etc/ca.pem")
    other = address_of(
        "kafka://a:9092,b:9092,a:9092?ssl.ca.location=/etc/ca.pem&sasl.username=ann&"
        "sasl.mechanism=scram-sha-512&security.protocol=sasl_ssl"
    )
    assert one == other
    assert one.hosts == ("a", "b")
    assert one.server == "a:9092,b:9092"


def test_a_private_key_is_a_file_that_is_checked() -> None:
    tls = "security.protocol=SSL&ssl.certificate.location=/etc/c.pem&ssl.key.location=/etc/k.pem"
    assert address_of(f"kafka://a:9092?{tls}").key_file == "/etc/k.pem"


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("kafka:/a:9092", r"sink\.dsn is not of the form kafka://host:port"),
        ("kafka://", r"names a broker that is not host:port"),
        ("kafka://a", r"names a broker that is not host:port"),
        ("kafka://a:9092,b:0", r"names a broker that is not host:port"),
        ("kafka://ann:hush@a:9092", r"has a user before its brokers.*sasl\.username=USER.*sink\.password_file"),
        ("kafka://a:9092?sasl.password=hush", r"sasl\.password is refused: it is a secret.*sink\.password_file"),
        ("kafka://a:9092?ssl.key.pem=hush", r"ssl\.key\.pem is refused: it is a secret.*ssl\.key\.location"),
        ("kafka://a:9092?acks=1", r"unknown option 'acks'; choose from security\.protocol"),
        ("kafka://a:9092?security.protocl=SSL", r"did you mean 'security\.protocol'"),
        ("kafka://a:9092?security.protocol=TLS", r"security\.protocol must be one of PLAINTEXT, SSL"),
        ("kafka://a:9092?security.protocol=SASL_SSL&sasl.mechanism=GSSAPI", r"sasl\.mechanism must be one of PLAIN"),
        ("kafka://a:9092?security.protocol=SASL_SSL", r"needs sasl\.mechanism and sasl\.username"),
        ("kafka://a:9092?sasl.username=ann", r"sasl\.username would not be used with security\.protocol=PLAINTEXT"),
        ("kafka://a:9092?ssl.ca.location=/ca.pem", r"ssl\.ca\.location would not be used.*security\.protocol=SSL"),
        ("kafka://a:9092?security.protocol=SSL&ssl.key.location=/k", r"give both or neither"),
        ("kafka://a:9092?security.protocol=SSL&ssl.ca.location=", r"ssl\.ca\.location is empty"),
        ("kafka://a:9092?enable.ssl.certificate.verification=false", r"nothing proves which cluster"),
    ],
)
def test_what_an_address_must_not_have_is_named_and_no_secret_is_quoted(dsn: str, why: str) -> None:
    with pytest.raises(DatabaseRefusedError, match=why) as refused:
        parse_address(dsn)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("dsn", "password_file", "why"),
    [
        (f"kafka://a:9092?{LOGIN}", None, r"the address names a user. Set sink\.password_file"),
        ("kafka://a:9092", Path("p"), r"the address names no user. Remove sink\.password_file"),
    ],
)
def test_a_user_and_a_password_belong_together(dsn: str, password_file: Path | None, why: str) -> None:
    with pytest.raises(DatabaseRefusedError, match=why):
        connect(Target(dsn, password_file))


def test_tls_of_a_connection_encrypts_an_address_that_names_no_protocol() -> None:
    with_tls = CONNECTED["kafka"].with_tls
    files = {"ca_file": "/ca.pem"}
    assert with_tls("kafka://a:9092", files, SINK) == "kafka://a:9092?security.protocol=SSL&ssl.ca.location=/ca.pem"
    user = "sasl.mechanism=PLAIN&sasl.username=ann"
    assert "security.protocol=SASL_SSL" in with_tls(f"kafka://a:9092?{user}", files, SINK)
    with pytest.raises(DatabaseRefusedError, match=r"ssl\.ca\.location beside tls"):
        with_tls("kafka://a:9092?ssl.ca.location=/other.pem", files, SINK)
