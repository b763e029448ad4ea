"""Spark reads what the Delta sink writes, and its jobs work beside the sink's commits."""

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from headgate.config.maintenance_options import MaintenanceOptions
from headgate.provisioning.time_scale import scaled_seconds
from headgate.sinks.contract import SinkFencedError, SinkRefusedError
from headgate.sinks.maintaining import upkeep_of
from headgate_lab.benchmarks.peers.lake_spark import LakeSpark, SparkRefusedError
from integration.sinks.contract import batch_of
from integration.sinks.spark_tables import SparkDelta

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(scaled_seconds(900))]

JOBS: Final = ("OPTIMIZE {name}", "OPTIMIZE {name} ZORDER BY (id)")
"""What users run on their own tables."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeSpark]:
    with LakeSpark(tmp_path_factory.mktemp("spark") / "session") as session:
        # With Spark's default of INT96, tables with the years 1 and 9999 are refused.
        session.execute("SET spark.sql.parquet.outputTimestampType = TIMESTAMP_MICROS")
        yield session


@pytest.fixture
def table(tmp_path: Path) -> SparkDelta:
    return SparkDelta(tmp_path)


def maintain(table: SparkDelta) -> Any:
    upkeep = replace(upkeep_of(MaintenanceOptions()), keep=timedelta(0), orphans=timedelta(0))
    return table.sink.maintain(table.claim, upkeep, datetime.now(UTC) + timedelta(minutes=10))


def run(spark: LakeSpark, table: SparkDelta, job: str) -> None:
    spark.execute(job.format(name=table.name))


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_spark_finds_floats_by_filters(table: SparkDelta, spark: LakeSpark, mode: str) -> None:
    """NaN is greater than all others in Spark, and statistics lack it."""
    table.start(mode, ())
    table.write(*(table.row(number) for number in range(18)))
    table.check(spark)
    table.check_filters(spark, ("real", "ratio"))
    table.write(*(table.row(number, shift=1) for number in range(0, 18, 2)), deleted=(1, 7))
    maintain(table)
    table.check(spark)
    table.check_filters(spark, ("real", "ratio"))


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_job_of_sparks_between_a_commits_reading_and_its_end(
    table: SparkDelta,
    spark: LakeSpark,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit is refused, reads what the job has made, and is made again; one that was overtaken stays refused."""
    table.start(mode, ())
    for first in range(0, 6, 2):
        table.write(table.row(first), table.row(first + 1))
    native = type(table.sink.lake().table("shop.orders"))
    write = "upsert" if mode == "upsert" else "append"
    real, jobs = getattr(native, write), list(JOBS)

    def after_a_job(self: Any, *arguments: Any) -> None:
        if jobs:
            run(spark, table, jobs.pop(0))
        real(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(native, write, after_a_job)
        table.write(table.row(0, shift=1), table.row(9), deleted=(3,))
    assert not jobs, "each job has made the commit start over"
    table.check(spark)
    assert table.sink.positions(table.claim)[0] == table.at
    former = table.claim
    table.claim = replace(former, epoch=replace(former.epoch, n=former.epoch.n + 1))
    assert table.sink.claim(table.claim)[0] == table.at
    for job in JOBS:
        run(spark, table, job)
        with pytest.raises(SinkFencedError):
            table.sink.writer().apply(batch_of(former, table.at, to=table.at + 1))
    table.write(table.row(10))
    maintain(table)
    table.check(spark)


def test_jobs_of_sparks_run_beside_commits(table: SparkDelta, spark: LakeSpark) -> None:
    """Whoever loses a race begins again: Headgate by itself, and a job once its user starts it again."""
    table.start("upsert", ())
    table.write(*(table.row(number) for number in range(9)))
    ended, refused, done = threading.Event(), list[str](), list[str]()

    def jobs() -> None:
        while not ended.is_set() or not done:
            job = JOBS[(len(done) + len(refused)) % len(JOBS)]
            try:
                run(spark, table, job)
                done.append(job)
            except SparkRefusedError as error:
                refused.append(str(error))

    thread = threading.Thread(target=jobs)
    thread.start()
    try:
        for round_ in range(24):
            table.write(table.row(round_, shift=round_), deleted=(round_ // 2,))
    finally:
        ended.set()
        thread.join()
    assert all("oncurren" in text or "MetadataChanged" in text for text in refused), refused
    table.check(spark)
    assert table.sink.positions(table.claim)[0] == table.at


def test_rows_that_spark_has_written_as_int96_are_not_changed(table: SparkDelta, spark: LakeSpark) -> None:
    """By its default. The statement of the error mends it."""
    table.start("upsert", ())
    for first in range(0, 6, 2):
        table.write(table.row(first), table.row(first + 1))
    spark.execute("SET spark.sql.parquet.outputTimestampType = INT96")
    try:
        run(spark, table, JOBS[0])
    finally:
        spark.execute("SET spark.sql.parquet.outputTimestampType = TIMESTAMP_MICROS")
    at = table.at
    with pytest.raises(SinkRefusedError, match="as INT96 in at, which delta-rs would change") as told:
        table.write(table.row(0, shift=1))
    table.at = at
    statement = re.search(r"INSERT OVERWRITE .*", str(told.value))
    assert statement is not None
    spark.execute(statement[0])
    table.check(spark)
    table.write(table.row(0, shift=1), deleted=(3,))
    maintain(table)
    table.check(spark)
