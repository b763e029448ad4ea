"""Requests to an Iceberg REST catalog: tokens and files that cannot be used, and answers that do not end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from requests.exceptions import RequestException, TooManyRedirects

from fixtures.raw_http import RawServer, answering_raw
from headgate.databases.address import Target
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg import bounded_answers
from headgate.sinks.iceberg.rest_session import CatalogSession, leaves_its_folder

NOWHERE = "http://127.0.0.1:1"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"


def session_of(url: str, token: Path | None = None, options: str = "") -> CatalogSession:
    return CatalogSession(lambda: Target(f"rest+{url}?warehouse=/tmp/lake{options}", token), url)


@contextmanager
def answering(first: bytes, piece: bytes, between: float = 0.0) -> Iterator[tuple[RawServer, CatalogSession]]:
    with answering_raw(first, piece, between) as server, session_of(server.url) as session:
        yield server, session


@pytest.mark.parametrize("dripping", [b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nx: ", HEAD], ids=range(4))
def test_an_answer_that_drips_ends_in_time(dripping: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes soon after the one before, so a limit of the time between bytes is never reached."""
    monkeypatch.setattr(bounded_answers, "ANSWER_SECONDS", 0.2)
    with (
        answering(dripping, b"1", between=0.002) as (server, session),
        pytest.raises(RequestException, match="not complete in time"),
    ):
        session.get(f"{server.url}/v1/config")
    assert server.was_left


def test_an_answer_that_is_too_large_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "ANSWER_BYTES_MAX", 1 << 20)
    with (
        answering(b"HTTP/1.1 200 OK\r\n\r\n", b"1" * 65536) as (server, session),
        pytest.raises(SinkRefusedError, match="has more than 1048576 bytes"),
    ):
        session.get(f"{server.url}/v1/config")
    assert server.was_left


def test_the_body_of_a_redirect_is_not_read() -> None:
    first = f"HTTP/1.1 307 Elsewhere\r\nlocation: {NOWHERE}/v1/config\r\n\r\n".encode()
    with answering(first, b"1" * 65536) as (server, session), pytest.raises(TooManyRedirects):
        session.get(f"{server.url}/v1/config")
    assert server.was_left


@pytest.mark.parametrize(
    "token", ["sec-ret\nsecond", "sec-ret second", "", "sec-r\u00e9t", "sec-ret\u20ac", "sec-ret\x01"]
)
def test_a_token_that_no_request_can_have_is_refused_and_not_quoted(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(SinkRefusedError, match=r"password_file does not name a file with a token") as refused:
        session_of(NOWHERE, file).get(f"{NOWHERE}/v1/config")
    assert "sec-r" not in repr(refused.value)


def moved(session: CatalogSession) -> None:
    session._find = lambda: Target("rest+http://127.0.0.1:2?warehouse=/tmp/lake")


def is_sql_now(session: CatalogSession) -> None:
    session._find = lambda: Target("sqlite:////tmp/lake/catalog.db")


@pytest.mark.parametrize("how", [moved, is_sql_now])
def test_an_address_that_has_changed_asks_for_a_restart(how: Callable[[CatalogSession], None]) -> None:
    session = session_of(NOWHERE)
    how(session)
    with pytest.raises(SinkRefusedError, match=rf"names .* now, and named the REST catalog at {NOWHERE} before\. Res"):
        session.get(f"{NOWHERE}/v1/config")


def test_a_file_of_a_ca_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SinkRefusedError, match=rf"ca_file: cannot read {tmp_path}/ca\.pem"):
        session_of(NOWHERE, options=f"&ca_file={tmp_path}/ca.pem").get(f"{NOWHERE}/v1/config")


@pytest.mark.parametrize("path", ["/v1/../../other", "/v1/%2e%2e/other", "/v1/a/%252E%252e/b", "/v1/..%5Cb", "/other"])
def test_a_request_that_leaves_the_address_is_not_sent(path: str) -> None:
    with pytest.raises(SinkRefusedError, match=r"was not sent, because it is not below the address"):
        session_of(NOWHERE).get(f"{NOWHERE}{path}")


def test_names_with_points_stay_where_they_are() -> None:
    assert not leaves_its_folder("/v1/of.this/..one/two../namespaces/a%1Fb")
