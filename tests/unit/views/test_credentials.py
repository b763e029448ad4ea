"""The security block as Faust's client takes it."""

import re
import ssl
from pathlib import Path

import pytest
import trustme

from headgate.config.settings import SettingsError
from headgate.views.stream import credentials_of


def test_plain_text_needs_none() -> None:
    assert credentials_of({}) is None
    assert credentials_of({"socket.keepalive.enable": "true"}) is None


def test_a_password_with_and_without_encryption(tmp_path: Path) -> None:
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "views", "sasl.password": "secret"}
    plain = credentials_of({"security.protocol": "SASL_PLAINTEXT", **login})
    assert plain is not None
    assert (plain.protocol.value, plain.mechanism.value, plain.username) == ("SASL_PLAINTEXT", "SCRAM-SHA-512", "views")
    authority = trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    encrypted = credentials_of({"security.protocol": "sasl_ssl", "ssl.ca.location": str(ca), **login})
    assert encrypted is not None
    assert encrypted.protocol.value == "SASL_SSL"
    assert encrypted.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert encrypted.ssl_context.check_hostname


def test_a_certificate_of_our_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    ours = authority.issue_cert("views")
    paths = {name: tmp_path / name for name in ("ca", "certificate", "key")}
    authority.cert_pem.write_to_path(paths["ca"])
    ours.cert_chain_pems[0].write_to_path(paths["certificate"])
    ours.private_key_pem.write_to_path(paths["key"])
    named = {f"ssl.{name}.location": str(path) for name, path in paths.items()}
    given = credentials_of({"security.protocol": "SSL", **named})
    assert given is not None
    assert given.protocol.value == "SSL"
    with pytest.raises(SettingsError, match=r"Kafka property ssl\.key\.location"):
        credentials_of({"security.protocol": "SSL", **{n: v for n, v in named.items() if "key" not in n}})


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "SASL_MECHANISM or --kafka-property): views know PLAIN",
        ),
        ({"ssl.crl.location": "x"}, "HEADGATE_KAFKA__SSL_CRL_LOCATION or --kafka-property): views cannot translate"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/none"}, "No such file"),
    ],
)
def test_what_has_no_translation_is_refused(properties: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        credentials_of(properties)
