"""What is a REST catalog's own: what its server may not decide, tokens, and errors with what to do."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
import trustme
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from headgate.config.partitioning import partition_fields
from headgate.config.secrets import ALLOWED_HOSTS
from headgate.databases.key_ranges import Chunk
from headgate.sinks.altering import AddedColumn, ColumnChanges
from headgate.sinks.contract import (
    SinkConflictError,
    SinkError,
    SinkRefusedError,
    SinkSilentError,
    SinkUnavailableError,
)
from headgate.sinks.creating import LakeType, NewColumn, NewTable
from headgate.sinks.iceberg import bounded_answers
from headgate.sinks.iceberg.files import ListedFiles
from headgate.sinks.iceberg.lake import IcebergLake
from headgate.sinks.iceberg.rest_catalog import ExactRestCatalog
from headgate.sinks.lake.tables import ConflictError, Stamp
from integration.sinks.contract import batch_of, claim_of, delete, upsert
from integration.sinks.iceberg_bench import COLUMNS
from integration.sinks.iceberg_rest_bench import RestBench
from integration.sinks.test_iceberg_tables import PROVIDER, Provider
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


def test_a_table_is_partitioned_by_the_server(bench: RestBench) -> None:
    bench.drop()
    columns = (NewColumn("id", LakeType(name="bigint"), is_nullable=False), NewColumn("value", LakeType(name="string")))
    partitions = partition_fields(["bucket(4, id)", "value"])
    assert bench.sink.create(NewTable(bench.table, columns, ("id",), partitions=partitions))
    assert bench.sink.partitions_of(bench.table) == ("bucket(4, id)", "value")
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, *(upsert(5 + n, n, "a=/b") for n in range(8))))
    bench.sink.writer().apply(batch_of(claim, 13, upsert(13, 3, None), delete(14, 4)))
    assert bench.rows() == {n: None if n == 3 else "a=/b" for n in range(8) if n != 4}


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
    monkeypatch.setattr(bounded_answers, "ANSWER_BYTES_MAX", 100)
    with pytest.raises(SinkRefusedError, match=r"has more than 100 bytes.*Expire snapshots"):
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


def test_ledgers_keep_few_snapshots_and_their_files(bench: RestBench) -> None:
    for n in range(1, 15):
        bench.sink.claim(claim_of(bench, n))
    ledger = bench.catalog.load_table(("_headgate", "tables", "shop", "orders"))
    assert 0 < len(ledger.metadata.snapshots) <= 10
    assert len(list(bench.folder.glob("_headgate/tables/shop/orders/metadata/snap-*"))) == len(
        ledger.metadata.snapshots
    )


def test_a_ledgers_writer_that_many_have_overtaken_finds_out(bench: RestBench) -> None:
    bench.sink.claim(claim_of(bench, 1))
    log = bench.another().lake().ledger(bench.table)._log
    entry = log.read()
    assert entry is not None
    for n in range(2, 15):
        bench.sink.claim(claim_of(bench, n))
    with pytest.raises(ConflictError):
        entry.set_properties({"a": "b"})


def test_what_cannot_be_removed_behind_a_commit_does_not_undo_it(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(_io: object, _file: object) -> None:
        raise PermissionError("no right to delete")

    monkeypatch.setattr(ListedFiles, "delete", denied)
    for n in range(1, 13):
        bench.sink.claim(claim_of(bench, n))
    assert bench.sink.positions(claim_of(bench, 12)) == {0: 5, 1: 0}
    assert "cannot be removed: no right to delete" in caplog.text


def test_a_point_may_separate_namespaces(bench: RestBench) -> None:
    """As in servers that are built of Iceberg's own classes. No name has one."""
    bench.server.config = {"defaults": {}, "overrides": {"namespace-separator": "%2E"}}
    bench.another().check([bench.table])


def test_a_commit_that_a_proxy_has_sent_twice_stays_whole(bench: RestBench) -> None:
    """The second request is refused for what the first has changed, and its files are the table's."""
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.server.repeats = True
    with pytest.raises(SinkUnavailableError, match=r"and the table has the commit.*It is retried"):
        bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    bench.server.repeats = False
    assert bench.rows() == {1: "a"}
    sink = bench.another()
    sink.claim(claim_of(bench, 2))
    assert sink.positions(claim_of(bench, 2)) == {0: 6, 1: 0}
    sink.writer().apply(batch_of(claim_of(bench, 2), 6, upsert(6, 2, "b")))
    assert bench.rows() == {1: "a", 2: "b"}


def test_a_refused_commit_whose_table_cannot_be_read_keeps_its_files(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, files = claim_of(bench, 1), len(list(bench.folder.rglob("*.parquet")))
    bench.sink.claim(claim)

    def conflict(*_: object) -> None:
        bench.server.answer = (503, {}, "")
        raise CommitFailedException("the newest snapshot is another one")

    monkeypatch.setattr(RestCatalog, "commit_table", conflict)
    with pytest.raises(SinkUnavailableError, match="and the table cannot be read"):
        bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert len(list(bench.folder.rglob("*.parquet"))) == files + 1


def test_one_catalog_is_not_reached_both_by_rest_and_by_sql(bench: RestBench) -> None:
    """A claim at SQL changes properties only, which a server does not compare."""
    by_sql = {"dsn": f"sqlite:///{bench.folder}/catalog.db", "password_file": None}
    for first, second in ((bench.another(), bench.opened(**by_sql)), (bench.opened(**by_sql), bench.another())):
        first.claim(claim_of(bench, 1))
        with pytest.raises(SinkConflictError, match=r"created through the address of a \w+ catalog.*one kind of addr"):
            second.claim(claim_of(bench, 2))
        bench.remove_ledger()
        bench.unbind()


def test_a_table_that_names_code_is_refused(bench: RestBench) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with bench.native.transaction() as change:
        change.set_properties({PROVIDER: f"{Provider.__module__}.{Provider.__qualname__}"})
    before = Provider.calls
    with pytest.raises(SinkRefusedError, match=f"has the property {PROVIDER}"):
        bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    with pytest.raises(SinkRefusedError, match=f"has the property {PROVIDER}"):
        bench.another().claim(claim_of(bench, 2))
    assert Provider.calls == before


CONFIGS = {
    "no defaults": ({"defaults": None}, "its configuration cannot be read"),
    "no separator": ({"overrides": {"namespace-separator": ""}}, "its configuration cannot be read"),
    "a slash as separator": ({"overrides": {"namespace-separator": "%2F"}}, "cannot be part of a name in a path"),
    "another path": ({"overrides": {"prefix": "../../other"}}, "leaves the path of the address"),
    "another path, hidden": ({"overrides": {"prefix": "a/%252e%2E"}}, "leaves the path of the address"),
    "a query": ({"overrides": {"prefix": "a?b="}}, "leaves the path of the address"),
}


@pytest.mark.parametrize("how", CONFIGS)
def test_a_configuration_that_leads_elsewhere_or_cannot_be_read_is_refused(bench: RestBench, how: str) -> None:
    changed, why = CONFIGS[how]
    bench.server.config = {"defaults": {}, "overrides": {}, **changed}
    before = bench.server.requests
    with pytest.raises(SinkRefusedError, match=f"does not do what a REST catalog does.*{why}"):
        bench.another().check([bench.table])
    assert bench.server.requests == before + 1


def test_a_namespace_that_was_dropped_just_now_is_retried(bench: RestBench) -> None:
    bench.server.answer = (404, {}, "")
    with pytest.raises(SinkUnavailableError, match="It is retried"), bench.lake.as_sink_errors("creating any"):
        bench.lake._catalog.create_table(("gone", "any"), COLUMNS)


@pytest.mark.parametrize("named", [None, "default", "shop"])
def test_the_catalog_that_is_named_is_asked_for(bench: RestBench, named: str | None) -> None:
    dsn = str(bench.spec["dsn"]) + ("" if named is None else f"&catalog={named}")
    bench.opened(dsn=dsn).check([bench.table])
    assert bench.server.asked == ({} if named is None else {"warehouse": [named]})


def test_closing_a_sink_closes_its_connections_and_it_can_be_used_again(bench: RestBench) -> None:
    sink = bench.another()
    sink.close()
    sink.claim(claim_of(bench, 1))
    lake = sink.lake()
    assert isinstance(lake, IcebergLake)
    assert isinstance(lake._catalog, ExactRestCatalog)
    pools = lake._catalog._session.get_adapter("http://any").poolmanager.pools  # type: ignore[attr-defined]
    assert len(pools) == 1
    sink.close()
    assert len(pools) == 0
    sink.positions(claim_of(bench, 1))
