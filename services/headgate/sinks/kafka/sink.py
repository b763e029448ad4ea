"""Kafka topics as a sink."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from headgate.config.feed import SinkSpec
from headgate.config.plugs import Writes
from headgate.databases import address
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kafka.address import SCHEME, address_of
from headgate.databases.kafka.cluster import connect
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable
from headgate.sinks import registry
from headgate.sinks.contract import Claim, FeedIdentity, SinkRefusedError, TableShape
from headgate.sinks.kafka.claims import Claims, refuse_strangers
from headgate.sinks.kafka.errors import as_sink_errors
from headgate.sinks.kafka.names import topic_of
from headgate.sinks.kafka.progress import place_of
from headgate.sinks.kafka.reserved import check_not_reserved
from headgate.sinks.kafka.target import Target, target_of
from headgate.sinks.kafka.topics import BROKERS_DEFAULT, create, describe
from headgate.sinks.kafka.writing import KafkaCommitter, KafkaStager
from headgate.sinks.on_driver import StagedWriter
from headgate.sinks.registry import SinkPlug

__all__ = ["SINK", "KafkaSink"]


class KafkaSink:
    """Topics of one cluster. ``by_key``: the key decides on a record's partition, instead of the source's partition."""

    def __init__(
        self,
        find: Callable[[], address.Target],
        *,
        by_key: bool = False,
        writes_events: bool = False,
        target: Target | None = None,
    ) -> None:
        """``find``: the cluster's address, which is asked for again after errors, because a connection may be changed.

        ``target``: what this process shares about the cluster, if it is not the usual.
        """
        self._find = find
        self._by_key = by_key
        self._writes_events = writes_events
        self._target = target

    @property
    def _shared(self) -> Target:
        with as_sink_errors("using Kafka as a sink"):
            target = self._target or target_of(self._find())
            _ = target.cluster_id
        return target

    @property
    def _claims(self) -> Claims:
        return Claims(self._shared)

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """See Sink. A topic that is missing is created when an agent takes the table (``prepare``)."""
        shapes = {}
        for table in tables:
            topic = topic_of(table)
            if identity is not None:
                check_not_reserved(topic, identity, self._shared.cluster_id, self._shared.progress)
                with as_sink_errors(f"checking topic {topic}"):
                    refuse_strangers(self._shared.ledger.read(topic), identity, topic, self._shared.progress)
            shapes[table] = TableShape(table, {}, (), secondary_unique=False)
        _ = self._shared
        return shapes

    def prepare(self, claim: Claim, partitions: int) -> None:
        """See Preparing."""
        topic, target = topic_of(claim.table), self._shared
        check_not_reserved(topic, claim.identity, target.cluster_id, target.progress)
        with as_sink_errors(f"preparing topic {topic}"):
            if claim.topic == topic and claim.identity.cluster_id.partition("/")[0] == target.cluster_id:
                raise SinkRefusedError(
                    f"topic {topic} is the source topic itself: every record would come back as a change. Choose "
                    "another name in sink.table, such as copy.{schema}.{table}"
                )
            found = describe(target.connection, topic)
            rows = target.ledger.read(topic).rows.get(place_of(claim, topic), {})
            ids = {row.target_id for row in rows.values() if row.incarnation >= claim.incarnation} - {None}
            if ids and (found is None or (found.id is not None and found.id not in ids)):
                what = "does not exist" if found is None else "was deleted and re-created"
                raise SinkRefusedError(
                    f"topic {topic} on Kafka at {target.bootstrap} {what}, and the records that Headgate has written "
                    f"to it are missing. Restore it, or pause the feed and run `headgate feed resume "
                    f"{claim.identity.feed} --from earliest`, which writes all changes of the source topic again"
                )
            if found is None:
                create(target.connection, topic, BROKERS_DEFAULT if self._by_key else partitions)
            elif found.partitions < partitions and not self._by_key:
                raise SinkRefusedError(
                    f"topic {topic} on Kafka at {target.bootstrap} has {found.partitions} partitions, and source topic "
                    f"{claim.topic} has {partitions}. Add partitions, or set sink.partitions: by-key"
                )

    def claim(self, claim: Claim) -> Positions:
        """See Sink."""
        topic, target = topic_of(claim.table), self._shared
        with as_sink_errors(f"describing topic {topic}"):
            found = describe(target.connection, topic)
        return self._claims.claim(claim, topic, None if found is None else found.id)

    def seal(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._claims.seal(claim, topic_of(claim.table))

    def positions(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._claims.positions(claim, topic_of(claim.table))

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See Sink."""
        return self._claims.source_table(claim, topic_of(claim.table))

    def forget(self, identity: FeedIdentity) -> None:
        """See Sink."""
        self._claims.forget(identity)

    def own_id(self) -> str | None:
        """See SelfAware: the cluster's own id."""
        return self._shared.cluster_id

    def published(self, database: str, tables: Sequence[str]) -> list[str]:  # noqa: ARG002
        """See SelfAware. Connectors do not read from Kafka."""
        return []

    def stager(self) -> KafkaStager:
        """See DriverSink."""
        with as_sink_errors("using Kafka as a sink"):
            return KafkaStager(connect(self._find()), by_key=self._by_key, writes_events=self._writes_events)

    def committer(self) -> KafkaCommitter:
        """See DriverSink."""
        return KafkaCommitter(self._shared, self._claims)

    def writer(self) -> StagedWriter:
        """See Sink."""
        return StagedWriter(self)

    def close(self) -> None:
        """See Sink. What the process shares about the cluster stays."""


def _open(spec: SinkSpec, _password_file: Path | None, _keeps_session: bool) -> KafkaSink:
    find = partial(registry.target_of, spec)
    return KafkaSink(find, by_key=spec.partitions == "by-key", writes_events=spec.writes_events)


def _address(dsn: str) -> address.Address:
    """As a feed gives it. Raises SinkRefusedError."""
    try:
        return address_of(dsn)
    except DatabaseRefusedError as error:
        raise SinkRefusedError(str(error)) from error


SINK: Final = SinkPlug(
    summary="Kafka topics: flat JSON or Debezium's events, in transactions (read them with read_committed)",
    writes=Writes.ON_DRIVER,
    options=frozenset({"connection", "format", "partitions", "password_file"}),
    schemes=(SCHEME,),
    address=_address,
    open=_open,
)
