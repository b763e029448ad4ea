"""Lake tables in an object store: the life of a table, what its users meet when the store fails, and the fence."""

import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from fixtures.object_store import Key
from headgate.config.maintenance_options import MaintenanceOptions
from headgate.config.secrets import ALLOWED_FOLDERS, ALLOWED_HOSTS
from headgate.config.sink_spec import SinkSpec
from headgate.databases.key_ranges import Chunk
from headgate.sinks.altering import AddedColumn, ColumnChanges
from headgate.sinks.contract import SinkError, SinkMovedError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.creating import LakeType, NewColumn, NewTable
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.maintaining import upkeep_of
from headgate.sinks.registry import open_sink, server_of
from integration.sinks.contract import batch_of, claim_of, delete, upsert
from integration.sinks.delta_bench import DeltaBench
from integration.sinks.iceberg_bench import IcebergBench
from integration.sinks.lake_contract import partial
from integration.sinks.lake_stores import PLACE, Store, a_store
from integration.sinks.test_lake_maintenance import NOTHING

pytestmark = pytest.mark.integration

DEFAULT = upkeep_of(MaintenanceOptions())
Bench = DeltaBench | IcebergBench


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with a_store(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture(params=[DeltaBench, IcebergBench], ids=["delta", "iceberg"])
def bench(tmp_path: Path, store: Store, request: pytest.FixtureRequest) -> Bench:
    return request.param(tmp_path, appends=False, store=store)


@pytest.fixture
def delta(tmp_path: Path, store: Store) -> DeltaBench:
    return DeltaBench(tmp_path, appends=False, store=store)


def opened(bench: Bench, **changes: Any) -> LakeSink:
    found = open_sink(SinkSpec.model_validate({**bench.spec, **changes}))
    assert isinstance(found, LakeSink)
    return found


def soon() -> datetime:
    """Later than what a busy machine still needs to reach the removal, whose age is in whole hours."""
    return datetime.now(UTC) + timedelta(minutes=5)


def data_files(store: Store) -> list[str]:
    return [name for name in store.server.objects if "/shop/" in name and name.endswith(".parquet")]


def test_the_life_of_a_table(bench: Bench, store: Store) -> None:
    bench.drop()
    columns = (NewColumn("id", LakeType(name="bigint"), is_nullable=False), NewColumn("value", LakeType(name="string")))
    assert bench.sink.lacks(bench.table)
    assert bench.sink.create(NewTable(bench.table, columns, ("id",)))
    assert not bench.sink.create(NewTable(bench.table, columns, ("id",))), "it exists by now"
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    for offset in range(5, 10):
        bench.sink.writer().apply(batch_of(claim, offset, upsert(offset, offset, "a")))
    bench.sink.writer().apply(batch_of(claim, 10, upsert(10, 5, "b"), delete(11, 6)))

    before = bench.sink.present_table(bench.table)
    assert before is not None
    added = AddedColumn(NewColumn("note", LakeType(name="string")), "none")
    assert bench.sink.alter(claim, {0: 12, 1: 0}, before, ColumnChanges(added=(added,)))
    wide = replace(upsert(12, 12, "c"), row={"id": 12, "value": "c", "note": "new"})
    bench.sink.writer().apply(batch_of(claim, 12, wide))
    rows = {5: "b", 7: "a", 8: "a", 9: "a", 12: "c"}
    assert bench.rows() == rows

    done = bench.sink.maintain(claim, NOTHING, soon())
    assert (done.files_after, len(data_files(store))) == (1, 1)
    assert done.removed
    found = bench.sink.rows().rows_within(bench.table, ["note"], ["id"], Chunk(None, None))
    assert dict(found) == {str(row): "new" if row == 12 else "none" for row in rows}
    assert sorted((row["id"], row["note"]) for row in bench.records())[-1] == (12, "new")
    if isinstance(bench, DeltaBench):
        assert DeltaTable(bench.path, storage_options=store.delta).to_pyarrow_table().num_rows == len(rows)
    else:
        assert bench.native.scan().to_arrow().num_rows == len(rows)
    assert bench.lake.where(bench.table)
    assert bench.sink.positions(claim) == {0: 13, 1: 0}


def test_old_files_that_no_version_names_are_removed_and_young_ones_are_kept(bench: Bench, store: Store) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 5, "a")))
    folder = data_files(store)[0].rpartition("/")[0]
    store.server.put(f"{folder}/left-behind.parquet", "half a file")
    store.server.put(f"{folder}/day=a%20b/left-behind.parquet", "half a file")
    store.server.put(f"{folder}/of-another-job.parquet", "half a file", modified=soon().timestamp() - 3_600)
    bench.sink.maintain(claim, replace(DEFAULT, orphans=timedelta(days=1), keep=timedelta(hours=2)), soon())
    left = data_files(store)
    assert not any("left-behind" in name for name in left)
    assert f"{folder}/of-another-job.parquet" in left
    assert bench.rows() == {5: "a"}


FAILING = {
    "wrong key": ({"key_id": "AKOTHER"}, SinkRefusedError, r"InvalidAccessKeyId.*Correct the files in sink\.store"),
    "wrong secret": (
        {"key_secret": "another/secret"},
        SinkRefusedError,
        r"SignatureDoesNotMatch.*Correct the files in sink\.store",
    ),
    "expired": ({"key_refusal": "ExpiredToken"}, SinkRefusedError, r"ExpiredToken.*has expired. Correct the files"),
    "read-only": ({"key_may_write": False}, SinkRefusedError, r"AccessDenied.*Permit it .*s3:PutObject.*s3://lake/"),
    "clock": ({"key_refusal": "RequestTimeTooSkewed"}, SinkRefusedError, r"Synchronise this machine's clock"),
    "busy": ({"key_refusal": "SlowDown"}, SinkUnavailableError, r"\(SlowDown\)\. It is retried"),
}


def shows_no_keys(error: BaseException) -> None:
    """Nor what the server has said of them, in all that may be shown of the error."""
    shown = "".join(traceback.format_exception(error))
    for text in (Key().id, Key().secret, "AKOTHER", "another/secret", "<Error>"):
        assert text not in shown, shown


@pytest.mark.parametrize("how", FAILING)
def test_a_failing_store_is_told_with_what_to_do_and_nothing_is_lost(bench: Bench, store: Store, how: str) -> None:
    claim, (behaviour, kind, match) = claim_of(bench, 1), FAILING[how]
    bench.sink.claim(claim)
    writer = bench.sink.writer()
    writer.apply(batch_of(claim, 5, upsert(5, 5, "a")))
    new = batch_of(claim, 6, upsert(6, 6, "b"))
    with store.server.behaving(**behaviour):
        for act in (lambda: writer.apply(new), lambda: bench.another().check([bench.table])):
            with pytest.raises(SinkError, match=rf"(?s)object store at {store.server.url} .*{match}") as found:
                act()
            assert isinstance(found.value, kind)
            shows_no_keys(found.value)
    assert bench.rows() == {5: "a"}
    writer.apply(new)
    assert bench.rows() == {5: "a", 6: "b"}


@pytest.mark.parametrize(("code", "kind"), [("SlowDown", SinkUnavailableError), ("AccessDenied", SinkRefusedError)])
def test_a_file_of_rows_that_cannot_be_read_is_told_like_any_other(
    bench: Bench, store: Store, code: str, kind: type[SinkError]
) -> None:
    """An update that leaves a value out needs the row."""
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    writer = bench.sink.writer()
    writer.apply(batch_of(claim, 5, upsert(5, 5, "a")))
    with store.server.behaving(refuses=("GET", ".parquet", code)):
        with pytest.raises(kind, match=r"shop\.orders") as found:
            writer.apply(batch_of(claim, 6, partial(6, 5)))
        shows_no_keys(found.value)
    writer.apply(batch_of(claim, 6, partial(6, 5)))
    assert bench.rows() == {5: "a"}


def test_a_table_or_its_trial_is_named(bench: Bench, store: Store) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with store.server.behaving(key_may_write=False):
        with pytest.raises(SinkRefusedError, match=r"shop\.orders"):
            bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 5, "a")))
        with pytest.raises(SinkRefusedError, match=rf"trying {PLACE}"):
            bench.another().check([bench.table])


def test_a_store_is_tried_once_for_all_claims_of_a_process_and_again_for_each_feed_that_is_created(
    bench: Bench, store: Store
) -> None:
    def tries(sink: LakeSink, act: str) -> bool:
        store.server.requests()
        if act == "claim":
            sink.claim(claim_of(bench, 1))
        else:
            sink.check([bench.table])
        return any("/trial-" in path for _, path, _ in store.server.requests())

    assert tries(bench.another(), "claim")
    assert not tries(bench.another(), "claim")
    assert tries(sink := bench.another(), "check")
    assert not tries(sink, "check")


def test_a_bucket_that_does_not_exist(bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_FOLDERS, f"{bench.root},s3://none")
    sink = opened(bench, dsn=bench.spec["dsn"].replace(PLACE, "s3://none/there"))
    for act in (lambda: sink.check([bench.table]), lambda: sink.lacks(bench.table)):
        with pytest.raises(SinkRefusedError, match=r"NoSuchBucket.*bucket none does not exist there\. Create it, or"):
            act()


def test_a_server_that_is_down(bench: Bench, store: Store) -> None:
    sink = opened(bench, store={**store.options, "endpoint": "http://127.0.0.1:1"})
    with pytest.raises(SinkSilentError, match=r"http://127\.0\.0\.1:1 does not answer.*sink\.store\.endpoint"):
        sink.claim(claim_of(bench, 1))


def test_new_keys_are_read_by_a_sink_that_has_begun_with_others(bench: Bench, store: Store) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    writer = bench.sink.writer()
    writer.apply(batch_of(claim, 5, upsert(5, 5, "a")))
    store.server.behave(key_id="AKNEXT", key_secret="the/next+one")
    with pytest.raises(SinkRefusedError, match="InvalidAccessKeyId"):
        writer.apply(batch_of(claim, 6, upsert(6, 6, "b")))
    store.give(store.server.key)
    writer.apply(batch_of(claim, 6, upsert(6, 6, "b")))
    assert bench.sink.positions(claim) == {0: 7, 1: 0}


def test_a_session_token_is_used(tmp_path: Path, store: Store) -> None:
    store.server.behave(key_token="a-token")
    store.give(store.server.key)
    bench = DeltaBench(tmp_path, appends=False, store=store)
    bench.sink.claim(claim_of(bench, 1))
    with store.server.behaving(key_token="another"), pytest.raises(SinkRefusedError, match="InvalidToken"):
        bench.another().check([bench.table])


MISLEADING = {
    **dict.fromkeys(("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"), "http://127.0.0.1:1"),
    "AWS_REGION": "another",
    "AWS_DEFAULT_REGION": "another",
    "AWS_CONDITIONAL_PUT": "disabled",
    "AWS_COPY_IF_NOT_EXISTS": "header: x: y",
    "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    "AWS_SKIP_SIGNATURE": "true",
    "AWS_S3_LOCKING_PROVIDER": "dynamodb",
}


def test_keys_in_files_are_used_without_anything_of_the_machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    others = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"), "other")
    for name, value in (MISLEADING | others).items():
        monkeypatch.setenv(name, value)
    claim = claim_of(bench, 1)
    sink = bench.another()
    sink.claim(claim)
    for offset in range(5, 7):
        sink.writer().apply(batch_of(claim, offset, upsert(offset, offset, "a")))
    assert sink.positions(claim) == {0: 7, 1: 0}
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    with pytest.raises(SinkRefusedError, match=r"AWS_SESSION_TOKEN, which libraries would send with it\. Unset"):
        sink.positions(claim)


def test_keys_of_the_machine_are_used_where_no_file_is_named(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else of the environment is: not another server, nor another way to create files."""
    options = {name: value for name, value in store.options.items() if not name.endswith("_file")}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.server.key.id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.server.key.secret)
    for name, value in MISLEADING.items():
        monkeypatch.setenv(name, value)
    sink, claim = opened(bench, store=options), claim_of(bench, 1)
    sink.claim(claim)
    sink.writer().apply(batch_of(claim, 5, upsert(5, 5, "a")))
    assert bench.sink.positions(claim) == {0: 6, 1: 0}
    with (
        store.server.behaving(key_id="AKOTHER"),
        pytest.raises(SinkRefusedError, match="Correct the keys of this mach"),
    ):
        opened(bench, store=options).check([bench.table])


def test_places_servers_and_files_that_are_not_listed_are_refused(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED_HOSTS, "db,another")
    with pytest.raises(SinkRefusedError, match=rf"sink\.store\.endpoint names host 127\.0\.0\.1, .*{ALLOWED_HOSTS}"):
        opened(bench)
    aws = {"region": "eu-central-1"}
    with pytest.raises(SinkRefusedError, match=r"sink\.store\.region names host s3\.eu-central-1\.amazonaws\.com"):
        opened(bench, store=aws)
    monkeypatch.setenv(ALLOWED_HOSTS, "127.0.0.1")
    opened(bench)
    with pytest.raises(SinkRefusedError, match=r"access_key_id_file /etc/passwd is not in"):
        opened(bench, store={**store.options, "access_key_id_file": "/etc/passwd"})
    with pytest.raises(SinkRefusedError, match=r"neither a region of AWS nor the server"):
        opened(bench, store={})
    for place in ("s3://other/tables", f"{PLACE}s", f"{PLACE}/../other"):
        with pytest.raises(SinkRefusedError, match=r"not below a folder in|is not a place in an object store"):
            opened(bench, dsn=bench.spec["dsn"].replace(PLACE, place))
    monkeypatch.setenv(ALLOWED_FOLDERS, str(bench.root))
    with pytest.raises(SinkRefusedError, match=rf"{PLACE} is not below a folder in {ALLOWED_FOLDERS}"):
        bench.sink.claim(claim_of(bench, 1))  # though it was open before


def test_a_table_whose_files_are_in_another_bucket_is_refused(tmp_path: Path, store: Store) -> None:
    bench = IcebergBench(tmp_path, appends=False, store=store)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with bench.native.transaction() as change:
        change.set_properties({"write.data.path": "s3://other/orders"})
    with pytest.raises(SinkRefusedError, match=r"s3://other/orders.* is not below a folder"):
        bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 5, "a")))


# --- the fence ---


@pytest.mark.parametrize(
    ("behaviour", "match"),
    [
        (
            {"honours_conditions": False},
            r"let 9 writers create one file.*If-None-Match.*overwrite each other's commits",
        ),
        ({"refuses_conditions": "NotImplemented"}, r"\(NotImplemented\).*Upgrade the store, or use another one"),
    ],
)
def test_a_store_that_does_not_create_files_exclusively_is_refused_before_anything_is_written(
    delta: DeltaBench, store: Store, behaviour: dict[str, Any], match: str
) -> None:
    delta.drop()
    before = store.server.objects
    with store.server.behaving(**behaviour):
        for act in (
            lambda sink: sink.check([delta.table]),
            lambda sink: sink.lacks(delta.table),
            lambda sink: sink.claim(claim_of(delta, 1)),
        ):
            with pytest.raises(SinkRefusedError, match=match):
                act(delta.another())
    assert store.server.objects == before, "no trial is left behind"


def test_a_lost_answer_of_a_commit_is_found_out(delta: DeltaBench, store: Store) -> None:
    """The library repeats the request, and is told that the file exists: its own."""
    claim = claim_of(delta, 1)
    delta.sink.claim(claim)
    writer = delta.sink.writer()
    with store.server.behaving(loses=("PUT", "/shop/orders/_delta_log/")), pytest.raises(SinkError) as found:
        writer.apply(batch_of(claim, 5, upsert(5, 5, "a")))
    assert isinstance(found.value, SinkMovedError | SinkUnavailableError)
    assert delta.sink.positions(claim) == {0: 6, 1: 0}
    writer.apply(batch_of(claim, 6, upsert(6, 6, "b")))
    assert delta.rows() == {5: "a", 6: "b"}


def test_lost_answers_of_a_claim_are_found_out(delta: DeltaBench, store: Store) -> None:
    with store.server.behaving(loses=("PUT", "_delta_log/")), pytest.raises(SinkUnavailableError):
        delta.sink.claim(claim_of(delta, 1))
    claim = claim_of(delta, 2)
    delta.sink.claim(claim)
    delta.sink.writer().apply(batch_of(claim, 5, upsert(5, 5, "a")))
    assert delta.rows() == {5: "a"}


def test_a_commit_that_is_forbidden_is_not_taken_for_one_that_was_overtaken(delta: DeltaBench, store: Store) -> None:
    claim = claim_of(delta, 1)
    delta.sink.claim(claim)
    store.server.requests()
    forbidden = ("PUT", "/shop/orders/_delta_log/", "AccessDenied")
    with store.server.behaving(refuses=forbidden), pytest.raises(SinkRefusedError, match="AccessDenied"):
        delta.sink.writer().apply(batch_of(claim, 5, upsert(5, 5, "a")))
    assert len(commits(store)) == 1


def commits(store: Store) -> list[bool]:
    """Of each file of a log that was written since the last call: whether it was to be written only if it was new."""
    return [is_new for method, path, is_new in store.server.requests() if method == "PUT" and "/_delta_log/0" in path]


def test_every_commit_to_a_table_and_to_a_ledger_is_a_conditional_put(delta: DeltaBench, store: Store) -> None:
    for number in (1, 2):
        claim = claim_of(delta, number)
        at = delta.sink.claim(claim)[0]
        delta.sink.writer().apply(batch_of(claim, at, upsert(at, at, "a")))
    delta.sink.maintain(claim, NOTHING, soon())
    found = commits(store)
    assert len(found) >= 8
    assert all(found)


def test_a_file_that_another_engine_spells_in_its_own_way_is_not_removed(tmp_path: Path, store: Store) -> None:
    bench = IcebergBench(tmp_path, appends=False, store=store)
    with bench.native.transaction() as change:
        change.set_properties({"write.data.path": f"{bench.native.location().replace('s3://', 's3a://')}/data"})
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 5, "a")))
    (task,) = bench.native.scan().plan_files()
    assert task.file.file_path.startswith("s3a://")
    bench.sink.maintain(claim, NOTHING, soon())
    assert len(data_files(store)) == 1
    bench.sink.writer().apply(batch_of(claim, 6, upsert(6, 5, "b")))
    assert bench.sink.positions(claim) == {0: 7, 1: 0}


def test_two_stores_with_buckets_of_one_name_are_two_servers(bench: Bench) -> None:
    spec = SinkSpec.model_validate(bench.spec)
    if isinstance(bench, DeltaBench):
        assert server_of(spec) == bench.spec["store"]["endpoint"]
