"""What both relational sinks keep beside the contract of every sink, and the tables that they are tried with."""

import subprocess
import threading
from typing import Protocol

import psycopg
import pytest

from fixtures.services import mariadb_execute
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    Sink,
    SinkConflictError,
    SinkFencedError,
    SinkUnavailableError,
)
from integration.sinks.contract import Bench, SinkContract, batch_of, claim_of, frozen_while_applying, run_all, upsert


class PostgresTables:
    """A database of PostgreSQL, and what Headgate keeps there."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def execute(self, statement: str, parameters: object = None) -> list[tuple]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def restore(self, claim: Claim, positions: Positions, epoch: Epoch | None = None) -> None:
        epoch = epoch or claim.epoch
        for partition, offset in positions.items():
            self.execute(
                "UPDATE headgate.progress SET next_offset = %s, owner_rev = %s, n = %s WHERE partition = %s",
                (offset, epoch.owner_rev, epoch.n, partition),
            )

    def freeze_while_applying(self, batch: ChangeBatch) -> "subprocess.Popen[str]":
        return frozen_while_applying({"type": "postgresql", "dsn": self.dsn}, batch)


class MysqlTables:
    """The same of a MariaDB."""

    def __init__(self, url: str) -> None:
        self.url = url

    def execute(self, statement: str, parameters: object = None) -> list[tuple]:
        return mariadb_execute(self.url, statement, parameters)

    def restore(self, claim: Claim, positions: Positions, epoch: Epoch | None = None) -> None:
        epoch = epoch or claim.epoch
        for partition, offset in positions.items():
            self.execute(
                "UPDATE headgate.progress SET next_offset = %s, owner_rev = %s, n = %s WHERE part = %s",
                (offset, epoch.owner_rev, epoch.n, partition),
            )

    def freeze_while_applying(self, batch: ChangeBatch) -> "subprocess.Popen[str]":
        return frozen_while_applying({"type": "mysql", "dsn": self.url}, batch)


class RelationalBench(Bench, Protocol):
    """A sink with a server behind it."""

    def nowhere(self) -> Sink:
        """A sink whose server does not exist."""
        ...

    def end_session(self, claim: Claim) -> None:
        """Have the server end the session of the claim's writer."""
        ...


class RelationalContract(SinkContract):
    def test_one_table_under_two_names_is_one_table(self, bench: RelationalBench) -> None:
        bench.sink.claim(claim_of(bench, 1, table="orders"))
        with pytest.raises(SinkConflictError):
            bench.sink.claim(claim_of(bench, 1, identity=FeedIdentity("cluster-a", "0-8", "other")))
        with pytest.raises(SinkFencedError):
            bench.sink.claim(claim_of(bench, 0))

    def test_a_writer_ended_by_the_sink_can_go_on_with_a_new_session(self, bench: RelationalBench) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer = bench.sink.writer()
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        bench.end_session(claim)
        second = batch_of(claim, 6, upsert(6, 1, "b"))
        with pytest.raises(SinkUnavailableError):
            writer.apply(second)
        assert bench.sink.positions(claim) == {0: 6, 1: 0}
        writer.apply(second)
        writer.close()
        assert bench.rows() == {1: "b"}

    def test_an_unreachable_sink_is_unavailable(self, bench: RelationalBench) -> None:
        nowhere, claim = bench.nowhere(), claim_of(bench, 1)
        with pytest.raises(SinkUnavailableError):
            nowhere.claim(claim)
        with pytest.raises(SinkUnavailableError):
            nowhere.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))

    def test_two_first_claims_at_once_leave_one_winner(self, bench: RelationalBench) -> None:
        """Schema, tables and rows are made by whoever comes first; two feeds never both get the table."""
        outcomes: list[object] = []

        def claim(feed_id: str) -> None:
            identity = FeedIdentity("cluster-a", feed_id, feed_id)
            try:
                outcomes.append(bench.sink.claim(claim_of(bench, 1, identity=identity)))
            except SinkConflictError as error:
                outcomes.append(error)

        run_all([threading.Thread(target=claim, args=(f"0-{number}",)) for number in range(4)])
        assert len(outcomes) == 4
        assert [outcome for outcome in outcomes if isinstance(outcome, dict)] == [{0: 5, 1: 0}]
