"""Tokens of an OAuth2 server: issued, renewed before they expire and once they are refused, and never shown."""

import json
import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
import trustme

from fixtures.iceberg_rest import Issuer
from headgate.config.secrets import ALLOWED_HOSTS
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.iceberg import oauth2, rest_session
from headgate.sinks.iceberg.oauth2 import TokenSource
from headgate.sinks.lake.sink import LakeSink
from integration.sinks.contract import batch_of, claim_of, upsert
from integration.sinks.iceberg_rest_bench import RestBench

pytestmark = pytest.mark.integration

SECRET = "s3cr-t/with&signs=+"
NOWHERE = "http://127.0.0.1:1/token"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestBench]:
    monkeypatch.setattr(rest_session, "TOKENS", TokenSource())  # of a server that had the same port
    with ExitStack() as ends:
        made = RestBench(tmp_path, ends, appends=False)
        made.server.issuer = Issuer("headgate", SECRET)
        made.token_file.write_text(SECRET)
        yield made


@pytest.fixture
def issuer(bench: RestBench) -> Issuer:
    assert bench.server.issuer is not None
    return bench.server.issuer


def opened(bench: RestBench, options: str = "", client: str = "headgate") -> LakeSink:
    return bench.opened(dsn=f"{bench.spec['dsn']}&client_id={client}{options}")


def write(bench: RestBench, sink: LakeSink, offset: int = 5) -> None:
    claim = claim_of(bench, 1)
    sink.claim(claim)
    sink.writer().apply(batch_of(claim, offset, upsert(offset, offset, "a")))


def test_the_catalog_issues_tokens_itself_and_one_is_enough(bench: RestBench, issuer: Issuer) -> None:
    write(bench, opened(bench))
    write(bench, opened(bench), 6)
    assert bench.rows() == {5: "a", 6: "a"}
    asked = {"grant_type": "client_credentials", "client_id": "headgate", "client_secret": SECRET}
    assert issuer.asked == [asked], "the second sink has the first one's"


def test_another_server_issues_them_for_what_is_asked(bench: RestBench, issuer: Issuer) -> None:
    other = bench.serving("other")
    bench.server.issuer, other.issuer = Issuer("nobody", ""), issuer
    bench.server.issuer.valid = issuer.valid
    options = "&scope=PRINCIPAL_ROLE%3AALL%20catalog&audience=lakekeeper&resource=https%3A%2F%2Fcatalog.example%2Fa"
    write(bench, opened(bench, f"&oauth2_server_uri={other.url}/v1/oauth/tokens{options}"))
    assert bench.server.issuer.asked == []
    (asked,) = issuer.asked
    named = (asked["scope"], asked["audience"], asked["resource"])
    assert named == ("PRINCIPAL_ROLE:ALL catalog", "lakekeeper", "https://catalog.example/a")


@pytest.mark.parametrize(("lifetime", "until"), [(3600, 3540), (90, 45), (2, 1)])
def test_a_token_is_renewed_before_it_expires(
    bench: RestBench, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, lifetime: int, until: int
) -> None:
    now = 0.0
    monkeypatch.setattr(oauth2, "_now", lambda: now)
    issuer.expires_in = lifetime
    sink = opened(bench)
    write(bench, sink)
    now = until - 0.01
    sink.positions(claim_of(bench, 1))
    assert len(issuer.asked) == 1
    now = until
    sink.positions(claim_of(bench, 1))
    assert len(issuer.asked) == 2


def test_a_token_that_the_catalog_does_not_take_is_renewed_once(
    bench: RestBench, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(oauth2, "_now", lambda: now)
    issuer.expires_in = None
    sink = opened(bench)
    write(bench, sink)
    issuer.valid.clear()
    now = 10.0
    write(bench, sink, 6)
    assert (bench.rows(), len(issuer.asked)) == ({5: "a", 6: "a"}, 2)
    denied = bench.server.issuer = Issuer("headgate", SECRET)
    denied.answer = (200, {}, json.dumps({"access_token": "never-valid", "token_type": "bearer"}))
    now = 20.0
    with pytest.raises(SinkRefusedError, match=r"Correct the secret of client headgate in sink\.password_file.*right"):
        sink.positions(claim_of(bench, 1))
    assert len(denied.asked) == 1, "pyiceberg repeats the request, with the same token"


def test_a_new_secret_is_read_and_a_wrong_one_is_not_shown(
    bench: RestBench, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    issuer.secret = "another-secret"
    with pytest.raises(SinkRefusedError, match=r"does not issue a token for client_id headgate \(401, inv") as refused:
        opened(bench).lake()
    chain: BaseException | None = refused.value
    while chain is not None:
        assert "s3cr" not in repr(chain)
        chain = chain.__cause__ or chain.__context__
    bench.token_file.write_text("another-secret\n")
    write(bench, opened(bench))
    assert not [line for line in caplog.messages if "s3cr" in line or "another-secret" in line or "issued-" in line]


def test_a_new_secret_takes_effect_while_a_token_is_kept(bench: RestBench, issuer: Issuer) -> None:
    sink = opened(bench)
    write(bench, sink)
    issuer.secret = "another-secret"
    bench.token_file.write_text("another-secret")
    write(bench, sink, 6)
    assert [form["client_secret"] for form in issuer.asked] == [SECRET, "another-secret"]


def test_a_catalog_that_repeats_the_request_does_not_show_the_token(bench: RestBench) -> None:
    sink = opened(bench)
    write(bench, sink)
    for status in (500, 200):
        bench.server.answer = (status, {}, "<pre>Authorization: Bearer issued-1</pre>")
        with pytest.raises(SinkError, match=r"<pre>Authorization: Bearer \*\*\*") as failed:
            sink.positions(claim_of(bench, 1))
        assert "issued-1" not in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        ((400, {}, '{"error": "invalid_scope"}'), SinkRefusedError, r"\(400, invalid_scope\).*or client_id, scope"),
        ((400, {}, '{"error": "s3cr-t/with"}'), SinkRefusedError, r"\(400\)"),
        ((403, {}, "<html>"), SinkRefusedError, r"\(403\)"),
        ((404, {}, ""), SinkRefusedError, r"is none \(404\)\. Correct oauth2_server_uri"),
        ((429, {}, ""), SinkUnavailableError, r"has not issued a token \(429\)\. It is retried"),
        ((503, {}, "s3cr"), SinkUnavailableError, r"has not issued a token \(503\)"),
        ((200, {}, "<html>s3cr"), SinkRefusedError, "something else than a bearer token"),
        ((200, {}, "\ufeff{}"), SinkRefusedError, "something else"),
        ((200, {}, "{}"), SinkRefusedError, "something else than a bearer token"),
        ((200, {}, '{"access_token": "a b"}'), SinkRefusedError, "something else than a bearer token"),
        ((200, {}, '{"access_token": ""}'), SinkRefusedError, "something else than a bearer token"),
        ((200, {}, '{"access_token": "a", "token_type": "mac"}'), SinkRefusedError, "something else than a bearer"),
        ((200, {}, '{"access_token": "s3cr", "expires_in": "soon"}'), SinkRefusedError, "something else than a bearer"),
        ((307, {"location": NOWHERE}, ""), SinkRefusedError, "redirects to another address"),
    ],
)
def test_what_a_server_may_answer_instead(
    bench: RestBench, issuer: Issuer, answer: tuple[int, dict[str, str], str], error: type[Exception], why: str
) -> None:
    issuer.answer = answer
    with pytest.raises(error, match=why) as refused:
        opened(bench).lake()
    assert "s3cr" not in str(refused.value)
    issuer.answer = None
    write(bench, opened(bench))


def test_a_text_is_taken_for_a_number_of_seconds(bench: RestBench, issuer: Issuer) -> None:
    """As some servers write it."""
    issuer.answer = (200, {}, json.dumps({"access_token": "a", "token_type": "bearer", "expires_in": "3600"}))
    issuer.valid.add("a")
    write(bench, opened(bench))
    assert len(issuer.asked) == 1


def test_the_token_servers_host_must_be_allowed(bench: RestBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_HOSTS, "127.0.0.1")
    with pytest.raises(
        SinkRefusedError, match=r"sink\.dsn names host issuer\.example, which is not in HEADGATE_ALLOWE"
    ):
        opened(bench, "&oauth2_server_uri=https://issuer.example/token").lake()


def test_a_secret_does_not_go_over_http_to_another_machine(bench: RestBench) -> None:
    with pytest.raises(SinkRefusedError, match=r"could read the secret on the way to http://issuer\.example/token"):
        opened(bench, "&oauth2_server_uri=http://issuer.example/token")


def test_a_client_needs_a_secret(bench: RestBench) -> None:
    with pytest.raises(SinkRefusedError, match=r"has a client_id, and no file has its secret.*sink\.password_file"):
        bench.opened(dsn=f"{bench.spec['dsn']}&client_id=headgate", password_file=None)


def test_the_token_servers_certificate_is_checked(bench: RestBench, issuer: Issuer, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = SSLContext(PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    other = bench.serving("other", server)
    other.issuer = issuer
    uri = f"&oauth2_server_uri={other.url}/v1/oauth/tokens"
    with pytest.raises(SinkRefusedError, match=r"the token server at .* has a certificate that is not trusted"):
        opened(bench, uri).lake()
    write(bench, opened(bench, f"{uri}&ca_file={tmp_path}/ca.pem"))


def test_the_machines_own_proxies_are_not_used(bench: RestBench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    write(bench, opened(bench))


def test_a_process_that_was_forked_has_the_token(bench: RestBench, issuer: Issuer) -> None:
    sink = opened(bench)
    write(bench, sink)
    child = os.fork()
    if not child:
        try:
            found = sink.positions(claim_of(bench, 1))
            os._exit(0 if found[0] == 6 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(issuer.asked) == 1
