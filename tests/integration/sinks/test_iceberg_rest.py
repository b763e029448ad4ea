"""What is a REST catalog's own: what its server may not decide, tokens, and errors with what to do."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
import trustme
from pyiceberg.types import StringType

from headgate.config.secrets import ALLOWED_HOSTS
from headgate.databases.key_ranges import Chunk
from headgate.sinks.altering import AddedColumn, ColumnChanges
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.creating import LakeType, NewColumn, NewTable
from headgate.sinks.iceberg import rest_session
from headgate.sinks.lake.tables import ConflictError, Stamp
from integration.sinks.contract import batch_of, claim_of, delete, upsert
from integration.sinks.iceberg_rest_bench import RestBench
from integration.sinks.test_lake_maintenance import NOTHING, later

pytestmark = pytest.mark.integration


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RestBench]:
    with ExitStack() as ends:
        yield RestBench(tmp_path, ends, appends=False)


def written(bench: RestBench) -> dict[int, str | None]:
    """What the table has after a claim and a commit of another sink."""
    sink, claim = bench.another(), claim_of(bench, 1)
    sink.claim(claim)
    sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    return bench.rows()


def test_the_life_of_a_table(bench: RestBench) -> None:
    bench.drop()
    columns = (NewColumn("id", LakeType(name="bigint"), is_nullable=False), NewColumn("value", LakeType(name="string")))
    assert bench.sink.create(NewTable(bench.table, columns, ("id",)))
    assert not bench.sink.create(NewTable(bench.table, columns, ("id",))), "it exists by now"
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    for offset in range(5, 10):
        bench.sink.writer().apply(batch_of(claim, offset, upsert(offset, offset, "a")))
    before = bench.sink.present_table(bench.table)
    assert before is not None
    added = AddedColumn(NewColumn("note", LakeType(name="string")), "none")
    assert bench.sink.alter(claim, {0: 10, 1: 0}, before, ColumnChanges(added=(added,)))
    bench.sink.writer().apply(batch_of(claim, 10, delete(10, 5)))
    done = bench.sink.maintain(claim, NOTHING, later())
    assert (done.files_after, len(list((bench.folder / "shop").rglob("*.parquet")))) == (1, 1)
    assert done.versions, "also snapshots without files expire"
    found = bench.sink.rows().rows_within(bench.table, ["note"], ["id"], Chunk(None, None))
    assert dict(found) == {str(row): "none" for row in range(6, 10)}
    assert bench.sink.positions(claim) == {0: 11, 1: 0}


def another_claim(bench: RestBench) -> None:
    bench.another().claim(claim_of(bench, 2))


def another_column(bench: RestBench) -> None:
    with bench.native.update_schema() as change:
        change.add_column("note", StringType())


@pytest.mark.parametrize("job", [another_claim, another_column])
def test_each_commit_is_made_on_exactly_what_was_read(bench: RestBench, job: Callable[[RestBench], None]) -> None:
    written(bench)
    read = [bench.lake.table(bench.table) for _ in range(3)]
    job(bench)
    with pytest.raises(ConflictError):
        read[0].mark(Stamp({"headgate/any": 1}))
    with pytest.raises(ConflictError):
        read[1].bind("any", Stamp())
    with pytest.raises(ConflictError):
        read[2].expire(later() + timedelta(days=1), Stamp())


def test_a_server_decides_the_prefix_of_its_paths_and_nothing_else(bench: RestBench) -> None:
    elsewhere = "http://127.0.0.1:1"
    chosen = {
        "uri": elsewhere, "s3.endpoint": elsewhere, "py-io-impl": "pathlib.Path", "token": "another",
        "header.Authorization": "Bearer another", "rest.sigv4-enabled": "true", "oauth2-server-uri": elsewhere,
    }  # fmt: skip
    bench.server.config = {"defaults": chosen, "overrides": {**chosen, "prefix": "of/this-one"}}
    assert written(bench) == {1: "a"}


def test_the_machines_own_proxies_and_passwords_are_not_used(
    bench: RestBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ann password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert written(bench) == {1: "a"}


def test_a_redirect_to_another_server_is_refused_and_not_followed(bench: RestBench) -> None:
    other = bench.serving("other")
    sink = bench.another()
    sink.claim(claim_of(bench, 1))
    bench.server.answer = (307, {"location": f"{other.url}/v1/config"}, "")
    for act in (lambda: sink.positions(claim_of(bench, 1)), lambda: bench.another().lake()):
        with pytest.raises(SinkRefusedError, match="redirects to another address"):
            act()
    assert other.requests == 0


def test_a_new_token_is_read_by_a_sink_that_has_begun_with_another(bench: RestBench) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.server.token = "the-next"
    with pytest.raises(
        SinkRefusedError, match=r"token is not valid.*Correct the token in sink\.password_file"
    ) as found:
        bench.sink.positions(claim)
    assert "a-token" not in str(found.value)
    bench.token_file.write_text("the-next\n")
    assert bench.sink.positions(claim) == {0: 5, 1: 0}


FAILING = {
    "broken": ((500, {}, "half an answer"), SinkUnavailableError, r"has not done a request.*It is retried"),
    "busy": ((503, {}, ""), SinkUnavailableError, "It is retried"),
    "not a catalog": ((200, {}, "<html>"), SinkRefusedError, "does not do what a REST catalog does.*Correct the add"),
    "lies": ((200, {}, '{"metadata": {}}'), SinkRefusedError, "does not do what a REST catalog does"),
    "forbids": ((403, {}, ""), SinkRefusedError, "give its user the right"),
}


@pytest.mark.parametrize("how", FAILING)
def test_a_failing_server_is_named_with_what_to_do_and_nothing_is_lost(bench: RestBench, how: str) -> None:
    claim, (answer, kind, match) = claim_of(bench, 1), FAILING[how]
    bench.sink.claim(claim)
    bench.server.answer = answer
    for act in (
        lambda: bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a"))),
        lambda: bench.another().check([bench.table]),
    ):
        with pytest.raises(SinkError, match=rf"(?s)catalog at {bench.server.url} .*{match}") as found:
            act()
        assert type(found.value) is kind
    bench.server.answer = None
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert bench.rows() == {1: "a"}


def test_a_server_that_is_down_is_silent(bench: RestBench) -> None:
    sink = bench.opened(dsn=f"rest+http://127.0.0.1:1?warehouse={bench.folder}")
    with pytest.raises(SinkSilentError, match=r"http://127\.0\.0\.1:1 does not answer"):
        sink.claim(claim_of(bench, 1))


def test_a_certificate_is_checked(bench: RestBench, tmp_path: Path) -> None:
    authority, tls = trustme.CA(), SSLContext(PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    place = bench.at(bench.serving("default", tls))
    with pytest.raises(SinkRefusedError, match=r"a certificate that is not trusted.*Name the CA's file in ca_file"):
        bench.opened(**place).check([bench.table])
    trusting = bench.opened(**{**place, "dsn": f"{place['dsn']}&ca_file={tmp_path / 'ca.pem'}"})
    trusting.claim(claim_of(bench, 1))
    assert trusting.positions(claim_of(bench, 1)) == {0: 5, 1: 0}


def test_an_answer_without_an_end_is_not_read_to_it(bench: RestBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_session, "ANSWER_BYTES_MAX", 100)
    with pytest.raises(SinkSilentError, match="the answer has more than 100 bytes"):
        bench.another().claim(claim_of(bench, 1))


def test_a_process_that_was_forked_uses_other_connections(bench: RestBench) -> None:
    """Spark forks its workers. Both processes would read answers from one connection."""
    bench.sink.claim(claim_of(bench, 1))
    session = bench.sink.lake()._catalog._session  # type: ignore[attr-defined]
    before = session.get_adapter("http://any")
    bench.sink.positions(claim_of(bench, 1))
    assert session.get_adapter("http://any") is before
    session._process = 0
    bench.sink.positions(claim_of(bench, 1))
    assert session.get_adapter("http://any") is not before


def test_servers_that_are_not_listed_are_refused(bench: RestBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_HOSTS, "another")
    for act in (bench.another, lambda: bench.sink.claim(claim_of(bench, 1))):
        with pytest.raises(SinkRefusedError, match=rf"host 127\.0\.0\.1, .*{ALLOWED_HOSTS}"):
            act()
    monkeypatch.setenv(ALLOWED_HOSTS, "catalog")
    with pytest.raises(SinkRefusedError, match=r"others could read the token.*Write rest\+https://"):
        bench.opened(dsn=f"rest+http://catalog:8181?warehouse={bench.folder}")


def test_ledgers_keep_few_snapshots(bench: RestBench) -> None:
    for n in range(1, 15):
        bench.sink.claim(claim_of(bench, n))
    ledger = bench.catalog.load_table(("_headgate", "tables", "shop", "orders"))
    assert 0 < len(ledger.metadata.snapshots) <= 10
