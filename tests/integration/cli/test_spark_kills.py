"""A feed on a Spark cluster goes on by itself when an executor, or a worker with its executor, is killed under writes.

An audit of the sink's own, a trigger, tells whether any row was written twice.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import psutil
import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fixtures.spark_cluster import SparkCluster, executors_of, python_without
from headgate.config.settings import Settings
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import ANSWER_SECONDS, Service, change, headgate
from support.topic_changes import make_topics
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

PARTITIONS = 4
"""Two for each of the two tasks of a batch."""

LOCAL_CLUSTER = "local-cluster[2,1,1024]"

AUDIT = """\
CREATE TABLE audit (id int);
CREATE FUNCTION audited() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN INSERT INTO public.audit VALUES (NEW.id); RETURN NULL; END';
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION audited()
"""


class Feeder:
    """Appends one new row after the other to the feed's topic, until told to end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written = 0
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ending.wait(0.01):
            self.written += 1
            key, value = change(self.written)
            self._producer.produce(self._topic, value, key, self.written % PARTITIONS)
            self._producer.poll(0)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join()
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def shop(settings: Settings, shop_file: Path, postgres_database: str) -> Iterator[Feeder]:
    """Feed shop, but over a topic with several partitions that nothing is on yet, and with an audit."""
    topic = f"{settings.cluster}-kills.src.orders"
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    make_topics(admin, NewTopic(topic, PARTITIONS, 1))
    spec = yaml.safe_load(shop_file.read_text(encoding="utf-8"))
    shop_file.write_text(yaml.safe_dump(spec | {"source": {"topics": [topic]}}), encoding="utf-8")
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute(AUDIT)
    with closing(Feeder(settings.bootstrap, topic)) as feeder:
        yield feeder


@pytest.mark.timeout(scaled_seconds(1200))
@pytest.mark.parametrize("is_standalone", [False, True], ids=["local-cluster", "standalone"])
def test_killed_executors_and_workers_are_gone_on_without(
    *,
    is_standalone: bool,
    shop: Feeder,
    shop_file: Path,
    serve: Callable[..., Service],
    spark_jars: tuple[Path, ...],
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with SparkCluster(tmp_path / "cluster", eventually) if is_standalone else nullcontext() as cluster:
        for _ in range(2 if cluster is not None else 0):
            assert cluster is not None
            cluster.add_worker(cores=1)
        monkeypatch.setenv("PYSPARK_PYTHON", str(python_without(tmp_path)))
        monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
        monkeypatch.setenv("HEADGATE_SPARK__MASTER", LOCAL_CLUSTER if cluster is None else cluster.master)
        monkeypatch.setenv("HEADGATE_SPARK__CORES", "2")
        node = serve("node", "node", "--name", "n1")
        eventually(lambda: node.get("/readyz")[0] == 200, "the coordinator is ready", seconds=300)
        created = headgate("feed", "create", str(shop_file))
        assert created.exit_code == 0, created.stderr

        def rows() -> int:
            assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
            with psycopg.connect(postgres_database) as database:
                return int(database.execute("SELECT count(*) FROM orders").fetchone()[0])  # type: ignore[index]

        def goes_on(after: str) -> None:
            written = shop.written
            eventually(lambda: rows() > written, f"rows come, written after {after}", seconds=300)

        def executors() -> list[psutil.Process]:
            starters = [node.process] if cluster is None else cluster.workers
            return [each for starter in starters if starter.poll() is None for each in executors_of(starter.pid)]

        with shop.running():
            goes_on("the start")
            assert len(executors()) == 2
            killed = executors()[0]
            killed.kill()
            goes_on("an executor was killed")
            eventually(lambda: killed not in executors() and len(executors()) == 2, "it was replaced")
            for each in executors():
                each.kill()
            goes_on("all executors were killed")
            if cluster is not None:
                cluster.kill_worker(0)
                goes_on("a worker was killed")
                assert len(executors()) == 1
                cluster.restart_master()
                cluster.kill_worker(1)
                cluster.add_worker(cores=2)
                goes_on("the master forgot us, and all workers are other ones")

        eventually(lambda: rows() == shop.written, "every row is there", seconds=300)
        with psycopg.connect(postgres_database) as database:
            audited = database.execute("SELECT count(*), count(DISTINCT id), max(id) FROM audit").fetchone()
        assert audited == (shop.written, shop.written, shop.written), "each was written once"

        def well() -> bool:
            (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
            return bool(row["state"] == "replicating" and not row["error"])

        eventually(well, "nothing is left of the errors")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(ANSWER_SECONDS) == 0, node.log_file.read_text(encoding="utf-8")
