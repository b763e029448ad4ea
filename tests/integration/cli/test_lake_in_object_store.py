"""A feed into Delta tables in an object store, from its creation to its rows."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import polars
import pytest
import yaml
from deltalake import DeltaTable

from fixtures.object_store import BUCKET
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import DEADLINE_SECONDS, Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop
from integration.sinks.lake_stores import PLACE, Store, a_store
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with a_store(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def shop(settings: Settings, log: KafkaLog, postgres_database: str, store: Store, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(settings, log, postgres_database, postgres_database, tmp_path)
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    spec["sink"] = {"type": "delta", "dsn": PLACE, "store": store.options, "commit_interval_seconds": 1}
    spec["sink"]["mode"] = "append"
    shop.file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    with shop.source, shop.sink:
        shop.add("orders")
        yield shop


def offsets(store: Store) -> list[int]:
    """Those of all changes in the table, as often as they are there."""
    place = f"{PLACE}/shop/orders"
    if not DeltaTable.is_deltatable(place, storage_options=store.delta):
        return []
    return sorted(polars.read_delta(place, storage_options=store.delta)["_offset"].to_list())


@pytest.mark.usefixtures("one_core_spark")
def test_a_feed_is_refused_by_a_store_that_cannot_fence_and_else_its_rows_arrive_once(
    shop: Shop, store: Store, serve: Callable[..., Service]
) -> None:
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)
    for behaviour, why in (
        ({"honours_conditions": False}, "ignores the condition If-None-Match"),
        ({"key_id": "AKOTHER"}, "InvalidAccessKeyId"),
        ({"key_may_write": False}, "s3:PutObject"),
    ):
        with store.server.behaving(**behaviour):
            for dry in (["--dry-run"], []):
                refused = headgate("feed", "create", str(shop.file), *dry)
                assert refused.exit_code != 0
                assert why in " ".join(refused.stderr.split())
                assert store.server.key.secret not in refused.stderr + refused.stdout

    dry_run = headgate("feed", "create", str(shop.file), "--dry-run", "-o", "json")
    assert dry_run.exit_code == 0, dry_run.stderr
    assert f"CREATE TABLE delta.`{PLACE}/shop/orders` (" in json.loads(dry_run.stdout)["statements"]
    assert store.server.objects == {}, "a trial is not left behind"
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr

    serve("a", "agent", "--name", "a")
    eventually(lambda: len(offsets(store)) >= ROWS, "the rows are there", READY_SECONDS)
    with store.server.behaving(key_refusal="SlowDown"):
        shop.add_events("orders")
        eventually(
            lambda: "SlowDown" in headgate("feed", "show", "shop", "-o", "json").stdout,
            "the table reports what its store answers",
            READY_SECONDS,
        )
    eventually(lambda: len(offsets(store)) >= 2 * ROWS, "the rest is there", READY_SECONDS)
    assert offsets(store) == [*range(2 * ROWS)]
    shown = headgate("feed", "show", "shop", "-o", "json").stdout
    assert (store.server.key.id in shown, store.server.key.secret in shown) == (False, False)
    assert all(name.startswith(PLACE.removeprefix(f"s3://{BUCKET}/")) for name in store.server.objects)
