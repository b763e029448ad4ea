"""Tokens of an OAuth2 server: what is kept, for how long, and errors that have nothing of what was sent."""

import math
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml
from urllib3.exceptions import HTTPError

from fixtures.raw_http import BODY, answering_raw
from headgate.config.secrets import CONNECTIONS
from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Target
from headgate.databases.iceberg.address import ClientCredentials
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.iceberg import bounded_answers, guarded_session, oauth2, rest_session
from headgate.sinks.iceberg.oauth2 import RETRY_SECONDS, TOKENS_MAX, TokenSource
from headgate.sinks.iceberg.rest_session import CatalogSession
from headgate.sinks.registry import open_sink, target_of

SECRET = "s3cr-t/with"
FILE = Path("secret")
CLIENT = ClientCredentials("https://issuer.example/token", "me")
OK = b"HTTP/1.1 200 OK\r\n"
SILENT_SECONDS_MAX = 10
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


class Issued:
    """Takes the place of a server: ``asked`` are the clients, secrets and CAs that it got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.error: SinkError | None = None
        self.asked: list[tuple[str, str, str | None]] = []
        monkeypatch.setattr(oauth2, "_now", lambda: self.now)
        monkeypatch.setattr(oauth2, "_fetched", self._fetched)

    def _fetched(self, client: ClientCredentials, secret: str, ca_file: str | None) -> oauth2._Kept:
        self.asked.append((client.id, secret, ca_file))
        if self.error is not None:
            raise self.error
        expires = self.now + 3600
        return oauth2._Kept(f"token-{len(self.asked)}", secret, self.now, expires - 60, expires)


@pytest.fixture
def issued(monkeypatch: pytest.MonkeyPatch) -> Issued:
    return Issued(monkeypatch)


def asked_of(url: str) -> str:
    return TokenSource().token(ClientCredentials(f"{url}/token", "me"), FILE, SECRET, None)


@contextmanager
def failing_without_a_secret(kind: type[SinkError], why: str) -> Iterator[None]:
    with pytest.raises(kind, match=why) as failed:
        yield
    assert "s3cr" not in "".join(traceback.format_exception(failed.value))
    cause: BaseException | None = failed.value
    while cause is not None:
        assert "s3cr" not in repr(cause)
        cause = cause.__cause__ or cause.__context__


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        (BODY + b"\r\n", SinkSilentError, "the answer is not HTTP"),
        (CHUNKED + BODY + b"\r\n", SinkSilentError, "cannot be read"),
        (CHUNKED + b'{"access_token":"s3cr-issued"}\r\n', SinkSilentError, "cannot be read"),
        (OK + b"content-length: 1,2\r\nx: " + BODY + b"\r\n\r\n", SinkSilentError, "cannot be read"),
        (OK + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\ns3cr-", SinkSilentError, "cannot be read"),
        (b"HTTP/1.1 302 F\r\nlocation: http://" + BODY + b"\r\n\r\n", SinkRefusedError, "redirects to another"),
        (b"HTTP/1.1 302 F\r\nlocation: \xff" + BODY + b"\r\n\r\n", SinkRefusedError, "redirects to another"),
        (b"HTTP/1.1 500 " + BODY + b"\r\ncontent-length: 0\r\n\r\n", SinkUnavailableError, r"token \(500\)"),
        (
            OK + b"content-length: 22\r\n\r\n" + b'{"access_token":"s3cr",',
            SinkRefusedError,
            "something else",
        ),
        (b"", SinkSilentError, "has ended before an answer"),
    ],
    ids=range(10),
)
def test_an_error_has_nothing_of_what_a_server_repeats(answer: bytes, kind: type[SinkError], why: str) -> None:
    with answering_raw(answer) as server, failing_without_a_secret(kind, why):
        asked_of(server.url)


def test_an_error_that_requests_passes_on_from_urllib3_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise HTTPError("s3cr-t")

    monkeypatch.setattr(bounded_answers.BoundedAdapter, "send", failing)
    with failing_without_a_secret(SinkSilentError, "not HTTP"):
        asked_of("http://127.0.0.1:1")


@pytest.mark.parametrize(("first", "piece"), [(OK + b"\r\n", b" "), (b"", b"H"), (OK, b"x")], ids=range(3))
def test_an_answer_without_an_end_is_left_in_time(first: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "ANSWER_SECONDS", 0.2)
    with (
        answering_raw(first, piece, 0.002) as server,
        pytest.raises(SinkSilentError, match=rf"token server at {server.url}/token does not answer: its.*in time"),
    ):
        asked_of(server.url)
    assert server.was_left


@contextmanager
def ended_by_itself(server: socket.socket) -> Iterator[None]:
    """So that a test of broken code ends too: its client gets another error then."""
    timer = threading.Timer(SILENT_SECONDS_MAX, server.shutdown, [socket.SHUT_RDWR])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_accepts_and_stays_silent_is_left_in_time(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(guarded_session, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, ended_by_itself(silent):
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SinkSilentError, match=rf"at {url}/token does not answer: .*in time\. It is retried"):
            asked_of(url)


def test_a_large_answer_is_one_of_the_token_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "ANSWER_BYTES_MAX", 1000)
    with (
        answering_raw(OK + b"\r\n", b"1" * 1000) as server,
        pytest.raises(SinkRefusedError, match=rf"of {server.url}/token has more than 1000 bytes\. Correct oauth2_s"),
    ):
        asked_of(server.url)


@pytest.mark.parametrize("life", ["0", "-5", '"nan"', '"inf"', '"-inf"', "null"])
def test_a_life_that_is_none_is_as_none(life: str) -> None:
    text = f'{{"access_token":"a","expires_in":{life}}}'.encode()
    with answering_raw(OK + b"content-length: %d\r\n\r\n%s" % (len(text), text)) as server:
        found = oauth2._fetched(ClientCredentials(f"{server.url}/token", "me"), SECRET, None)
    assert (found.token, found.renew, found.expires) == ("a", math.inf, math.inf)


def test_a_life_has_an_end_and_a_time_of_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "_now", lambda: 7.0)
    text = b'{"access_token":"a","expires_in":3600}'
    with answering_raw(OK + b"content-length: %d\r\n\r\n%s" % (len(text), text)) as server:
        found = oauth2._fetched(ClientCredentials(f"{server.url}/token", "me"), SECRET, None)
    assert (found.renew, found.expires) == (3547.0, 3607.0)


def test_each_client_secret_and_ca_has_its_own_token(issued: Issued) -> None:
    source = TokenSource()
    given = [(id_, ca) for id_ in ("a", "b") for ca in (None, "/ca.pem")]
    for _ in range(2):
        found = [source.token(msgspec.structs.replace(CLIENT, id=id_), FILE, SECRET, ca) for id_, ca in given]
        assert found == ["token-1", "token-2", "token-3", "token-4"]
    assert issued.asked == [(id_, SECRET, ca) for id_, ca in given]


def test_a_new_secret_takes_the_place_of_the_former_one(issued: Issued) -> None:
    source = TokenSource()
    assert source.token(CLIENT, FILE, SECRET, None) == "token-1"
    assert source.token(CLIENT, FILE, "new", None) == "token-2"
    assert source.token(CLIENT, FILE, "new", None) == "token-2"
    assert [kept.token for kept in source._kept.values()] == ["token-2"]
    issued.error = SinkUnavailableError("down")
    with pytest.raises(SinkUnavailableError):
        source.token(CLIENT, FILE, "third", None)


def test_many_clients_keep_their_tokens_and_those_that_expired_go_first(issued: Issued) -> None:
    source = TokenSource()
    clients = [msgspec.structs.replace(CLIENT, id=str(number)) for number in range(TOKENS_MAX + 1)]
    for _ in range(2):
        for client in clients[:-1]:
            source.token(client, FILE, SECRET, None)
    assert len(issued.asked) == TOKENS_MAX
    source.token(clients[-1], FILE, SECRET, None)
    assert len(source._kept) == TOKENS_MAX
    issued.now = 3600.0
    source.token(clients[0], FILE, SECRET, None)
    assert len(source._kept) == 1


def test_a_token_that_cannot_be_renewed_is_used_until_it_expires(issued: Issued) -> None:
    source = TokenSource()
    source.token(CLIENT, FILE, SECRET, None)
    issued.error = SinkUnavailableError("down")
    issued.now = 3541.0
    for _ in range(3):
        assert source.token(CLIENT, FILE, SECRET, None) == "token-1"
    assert len(issued.asked) == 2, "the server is not asked for each request"
    with pytest.raises(SinkUnavailableError):
        source.token(CLIENT, FILE, SECRET, None, refused="token-1")
    issued.now += RETRY_SECONDS
    assert source.token(CLIENT, FILE, SECRET, None) == "token-1"
    issued.now = 3600.0
    with pytest.raises(SinkUnavailableError):
        source.token(CLIENT, FILE, SECRET, None)
    issued.error = None
    assert source.token(CLIENT, FILE, SECRET, None) == f"token-{len(issued.asked)}"


def test_a_catalog_that_repeats_a_token_does_not_show_it() -> None:
    token = "issued-token/1"
    for spelling in (token, "issued-token%2F1", r"issued-token\/1"):
        text = f"Bearer {spelling}".encode()
        answer = b"HTTP/1.1 500 %s\r\ncontent-length: %d\r\n\r\n%s" % (text, len(text), text)
        with answering_raw(answer) as server, guarded_session.GuardedSession(server.url, "") as session:
            found = session.guarded("GET", server.url, ca_file=None, secrets=(None, "short", token))
        assert (found.text, found.reason) == ("Bearer ***", "Bearer ***")


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CONNECTIONS, str(tmp_path / "connections.yaml"))
    (tmp_path / "secret").write_text(SECRET)
    return tmp_path


def describe(folder: Path, address: str, *, with_file: bool = True) -> None:
    given = {"kind": "iceberg", "address": f"rest+{address}&warehouse={folder}", "use": ["sink"]}
    given |= {"password_file": str(folder / "secret")} if with_file else {}
    (folder / "connections.yaml").write_text(yaml.safe_dump({"connections": {"lake": given}}))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (
            ("https://127.0.0.2:1?client_id=a", True),
            ("https://127.0.0.2:1?client_id=a&oauth2_server_uri=http://127.0.0.2:1/token", True),
            r"could read the secret on the way to http://127\.0\.0\.2:1/token",
        ),
        (
            ("http://127.0.0.2:1?catalog=a", False),
            ("http://127.0.0.2:1?catalog=a", True),
            r"could read the token on the way to http://127\.0\.0\.2:1",
        ),
        (
            ("https://127.0.0.2:1?client_id=a", True),
            ("https://127.0.0.2:1?client_id=a", False),
            "has a client_id, and no file has its secret",
        ),
    ],
    ids=["token server", "token", "no secret"],
)
def test_a_connection_that_changes_does_not_send_a_secret_that_others_can_read(
    described: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[str, bool], after: tuple[str, bool], why: str
) -> None:
    monkeypatch.setattr(rest_session, "TOKENS", None)  # not asked
    spec = SinkSpec(type="iceberg", connection="lake")
    describe(described, before[0], with_file=before[1])
    open_sink(spec)
    url = before[0].partition("?")[0]
    with CatalogSession(lambda: target_of(spec), url) as session:
        describe(described, after[0], with_file=after[1])
        with pytest.raises(SinkRefusedError, match=why):
            session.get(f"{url}/v1/config")
    with pytest.raises(SinkRefusedError, match=why):
        open_sink(spec)


@pytest.mark.parametrize("status", [401, 419])
def test_a_token_that_a_catalog_does_not_take_is_asked_for_again(issued: Issued, tmp_path: Path, status: int) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with answering_raw(b"HTTP/1.1 %d Expired\r\ncontent-length: 0\r\n\r\n" % status) as server:
        source = TokenSource()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rest_session, "TOKENS", source)
            dsn = f"rest+{server.url}?warehouse={tmp_path}&client_id=me"
            with CatalogSession(lambda: Target(dsn, tmp_path / "secret"), server.url) as session:
                first = session._given().token()
                issued.now = 10.0
                issued.error = SinkUnavailableError("asked again")
                with pytest.raises(SinkUnavailableError, match="asked again"):
                    session.get(f"{server.url}/v1/config")
    assert (first, len(issued.asked)) == ("token-1", 2)
