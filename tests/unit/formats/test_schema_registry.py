"""The registry's client against a server that answers what a test tells it to.

What a real registry answers is in tests/integration/sources/test_registry.py; these are the ways to be none.
"""

import base64
import json
import re
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from fixtures.registry_server import NOT_FOUND, OF_SOURCE, Answer, RegistryServer
from headgate.config.registry_spec import RegistrySpec
from headgate.formats import schema_registry as module
from headgate.formats.change import ChangeError
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import RegistryRefusedError, SchemaRegistry
from headgate_lab.embedded.ports import free_ports

FOUND = (200, json.dumps({"schema": '"string"'}))
SECRET = "gehe1m"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as started:
        started.answer = FOUND
        yield started


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def client(server: RegistryServer, clock: Clock | None = None, **options: Any) -> SchemaRegistry:
    plain = {"allow_plain_http": True} if "user" in options else {}
    return SchemaRegistry(RegistrySpec(url=server.url, **plain, **options), OF_SOURCE, clock or Clock())


def test_a_schema_is_asked_for_by_its_id(server: RegistryServer) -> None:
    assert client(server).schema(7) == '"string"'
    assert server.asked == [("/schemas/ids/7", None)]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_user_and_password_are_sent_and_read_anew_each_time(server: RegistryServer, tmp_path: Path, end: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(f"{SECRET}{end}".encode())
    asker = client(server, user="ann", password_file=file)
    asker.schema(7)
    file.write_text("changed", encoding="utf-8")
    asker.schema(8)
    sent = [base64.b64decode(str(header).removeprefix("Basic ")).decode() for _, header in server.asked]
    assert sent == [f"ann:{SECRET}", "ann:changed"]


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()


def send_elsewhere(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "/elsewhere")
    handler.end_headers()


def never_end(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 65536)
    except OSError:
        pass


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((500, ""), "answers 500"),
        ((503, '{"error_code": 50003, "message": "no leader"}'), r"answers 503 .* no leader \(50003\)"),
        ((429, ""), "answers 429"),
        (
            (401, '{"error_code": 401, "message": "Unauthorized"}'),
            r"refuses access \(401: Unauthorized\)\. Correct source\.registry\.user and source\.registry\.pass",
        ),
        ((401, '{"error_code": 40101, "message": ""}'), r"refuses access \(401 \(40101\)\)\. Correct"),
        ((500, '{"error_code": 500, "message": "no leader"}'), r"answers 500 to [^:]*: no leader\. Check"),
        ((403, ""), r"refuses access \(403\)\. Correct source\.registry\.user"),
        (send_elsewhere, "answers 302"),
        ((404, "<html>no such page</html>"), "answers 404"),
        ((200, "<html>please log in</html>"), "not a schema registry"),
        ((200, '{"id": 7}'), "not a schema registry"),
        ((200, ""), "not a schema registry"),
        (hang_up, "cannot be used"),
        (never_end, "more than 1000 bytes"),
    ],
)
def test_whoever_answers_otherwise_than_a_registry_is_unavailable(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Answer, reason: str
) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 1000)
    file = tmp_path / "password"
    file.write_text(SECRET, encoding="utf-8")
    server.answer = answer
    with pytest.raises(SchemasUnavailableError, match=reason) as caught:
        client(server, user="ann", password_file=file).schema(7)
    assert str(caught.value).startswith(f"source.registry: the schema registry at {server.url} cannot be used: ")
    assert re.search(r"\. (Correct|Check .* or correct) source\.registry\.", str(caught.value)), "what to change"
    assert SECRET not in str(caught.value)
    # Nobody is asked twice, and no redirect is followed: it would take the password along.
    assert len(server.asked) == 1
    assert (caught.value.code, caught.value.retryable) == ("registry_unavailable", True)


def test_nobody_there_and_nobody_who_answers_in_time(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    with pytest.raises(SchemasUnavailableError, match="refused"):
        SchemaRegistry(RegistrySpec(url=f"http://127.0.0.1:{port}"), OF_SOURCE).schema(7)
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.1)
    over = threading.Event()
    server.answer = lambda _: over.wait(30)
    try:
        with pytest.raises(SchemasUnavailableError, match="timed out"):
            client(server).schema(7)
    finally:
        over.set()


def test_a_certificate_that_is_not_trusted_names_the_option_of_its_ca(server: RegistryServer) -> None:
    spec = RegistrySpec(url=server.url.replace("http:", "https:"))
    with pytest.raises(
        SchemasUnavailableError, match=r"SSL.*Correct source\.registry\.url, .* source\.registry\.ca_file"
    ):
        SchemaRegistry(spec, OF_SOURCE).schema(7)


class Papers:
    """Files of a CA, which has signed the server's certificate and the client's, and of a stranger's."""

    def __init__(self, folder: Path) -> None:
        authority, stranger = trustme.CA(), trustme.CA()
        self.ca, self.tls = folder / "ca.pem", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.cert_pem.write_to_path(str(self.ca))
        authority.issue_cert("127.0.0.1").configure_cert(self.tls)
        authority.configure_trust(self.tls)
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.tls.maximum_version = ssl.TLSVersion.TLSv1_2  # by 1.3 the refusal may be lost with the connection
        for name, signer in (("ours", authority), ("theirs", stranger)):
            made = signer.issue_cert("ann@example.org")
            made.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
            made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        self._folder = folder

    def spec(self, url: str, name: str | None, **changed: Path) -> RegistrySpec:
        files = {} if name is None else {"certificate_file": f"{name}.pem", "key_file": f"{name}.key"}
        return RegistrySpec(
            url=url, ca_file=self.ca, **{each: self._folder / file for each, file in files.items()} | changed
        )


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def secure(papers: Papers) -> Iterator[RegistryServer]:
    with RegistryServer(tls=papers.tls) as started:
        started.answer = FOUND
        yield started


def test_a_registry_that_asks_for_a_certificate_gets_it(secure: RegistryServer, papers: Papers) -> None:
    assert SchemaRegistry(papers.spec(secure.url, "ours"), OF_SOURCE).schema(7) == '"string"'


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (None, r"asks for a client certificate: name it in source\.registry\.certificate_file and key_file"),
        ("theirs", r"does not accept the certificate in .*theirs\.pem"),
    ],
)
def test_a_registry_that_refuses_the_certificate_is_not_asked_again_at_once(
    secure: RegistryServer, papers: Papers, name: str | None, advice: str
) -> None:
    with pytest.raises(RegistryRefusedError, match=advice):
        SchemaRegistry(papers.spec(secure.url, name), OF_SOURCE).schema(7)
    assert secure.asked == []


def test_files_that_are_not_a_certificate_and_its_key_are_named(secure: RegistryServer, papers: Papers) -> None:
    other = papers.ca.with_name("theirs.key")
    for changed, why in (
        ({"key_file": other}, r"ours\.pem and .*theirs\.key are not a certificate and its private key"),
        ({"certificate_file": other}, r"certificate_file: .*theirs\.key is not a file with a certificate"),
        ({"certificate_file": other.with_name("no.pem")}, r"certificate_file: cannot read .*no\.pem"),
        ({"key_file": other.with_name("no.key")}, r"no\.key are not a certificate"),
        ({"key_file": Path("/etc/hostname")}, "source.registry.key_file /etc/hostname is not in"),
    ):
        with pytest.raises(RegistryRefusedError, match=why):
            SchemaRegistry(papers.spec(secure.url, "ours", **changed), OF_SOURCE).schema(7)
    assert secure.asked == []


def test_an_encrypted_key_is_refused_and_no_password_is_asked_for(secure: RegistryServer, papers: Papers) -> None:
    key = serialization.load_pem_private_key(papers.ca.with_name("ours.key").read_bytes(), None)
    made = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    encrypted = papers.ca.with_name("encrypted.key")
    encrypted.write_bytes(made)
    with pytest.raises(RegistryRefusedError, match="without a password"):
        SchemaRegistry(papers.spec(secure.url, "ours", key_file=encrypted), OF_SOURCE).schema(7)


@pytest.mark.parametrize("option", ["password_file", "ca_file"])
def test_a_file_that_is_missing_is_named(server: RegistryServer, tmp_path: Path, option: str) -> None:
    missing = tmp_path / "missing"
    options: dict[str, Any] = {option: missing} | ({"user": "ann"} if option == "password_file" else {})
    spec = RegistrySpec(url=server.url.replace("http:", "https:"), **options)
    with pytest.raises(
        SchemasUnavailableError, match=rf"source\.registry\.{option}|Correct source\.registry, or the file"
    ):
        SchemaRegistry(spec, OF_SOURCE).schema(7)
    assert server.asked == []


def test_after_a_failure_nothing_is_asked_for_a_moment(server: RegistryServer) -> None:
    clock = Clock()
    asker = client(server, clock)
    server.answer = (500, "")
    for schema_id in range(100):
        with pytest.raises(SchemasUnavailableError, match="answers 500"):
            asker.schema(schema_id)
    assert len(server.asked) == 1
    server.answer = FOUND
    clock.now += module.PAUSE_SECONDS
    assert asker.schema(7) == '"string"'


def test_an_id_that_is_not_known_yet_is_asked_for_again_before_it_is_a_bad_one(server: RegistryServer) -> None:
    clock = Clock()
    asker = client(server, clock)
    server.answer = NOT_FOUND
    with pytest.raises(SchemasUnavailableError, match=r"schema id 7 is unknown .* is retried"):
        asker.schema(7)
    clock.now += module.UNKNOWN_SECONDS - 0.1
    with pytest.raises(SchemasUnavailableError):
        asker.schema(7)
    server.answer = FOUND
    assert asker.schema(7) == '"string"'
    # Known once, it begins anew.
    server.answer = NOT_FOUND
    with pytest.raises(SchemasUnavailableError):
        asker.schema(7)
    clock.now += module.UNKNOWN_SECONDS
    with pytest.raises(ChangeError, match=f"source.registry: schema id 7 is unknown to the registry at {server.url}"):
        asker.schema(7)


def test_unknown_ids_are_remembered_up_to_a_bound(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNKNOWN_MAX", 3)
    asker = client(server)
    server.answer = NOT_FOUND
    for schema_id in range(1, 10):
        with pytest.raises(SchemasUnavailableError):
            asker.schema(schema_id)
    assert sorted(asker._unknown_since) == [7, 8, 9]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "syntax = proto3;", "schemaType": "PROTOBUF"}, "of type PROTOBUF, not AVRO"),
        ({"schema": '"other"', "references": [{"name": "other", "subject": "s", "version": 1}]}, "refers to other"),
    ],
)
def test_schemas_that_cannot_be_read_are_bad(server: RegistryServer, answer: Any, reason: str) -> None:
    server.answer = (200, json.dumps(answer))
    with pytest.raises(ChangeError, match=reason):
        client(server).schema(7)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, '["JSON", "PROTOBUF", "AVRO"]'), None),
        ((200, '["JSON"]'), "not support Avro, only JSON"),
        ((200, '{"hello": "world"}'), "request for its schema types"),
        ((404, ""), "answers 404"),
        ((401, ""), "refuses access"),
    ],
)
def test_a_look_tells_whether_there_is_a_registry(server: RegistryServer, answer: Answer, reason: str | None) -> None:
    server.answer = answer
    if reason is None:
        client(server).check()
    else:
        with pytest.raises(SchemasUnavailableError, match=reason):
            client(server).check()
    assert server.asked == [("/schemas/types", None)]
