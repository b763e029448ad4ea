"""Kafka topics as a sink."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from headgate.config.plugs import Writes
from headgate.config.sink_spec import SinkSpec
from headgate.databases import address
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kafka.address import SCHEME, address_of
from headgate.databases.kafka.cluster import connect
from headgate.eventlog.replicas import BROKERS_DEFAULT
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable
from headgate.sinks import registry
from headgate.sinks.contract import Claim, FeedIdentity, SinkRefusedError, TableShape
from headgate.sinks.kafka.avro import Subjects
from headgate.sinks.kafka.claims import Claims, refuse_strangers
from headgate.sinks.kafka.errors import as_sink_errors, lost_topic
from headgate.sinks.kafka.names import topic_of
from headgate.sinks.kafka.progress import place_of
from headgate.sinks.kafka.reserved import check_not_read, check_not_reserved
from headgate.sinks.kafka.target import TargetCluster, target_of
from headgate.sinks.kafka.topics import Wanted, create, describe
from headgate.sinks.kafka.writing import KafkaCommitter, KafkaStager
from headgate.sinks.on_driver import StagedWriter
from headgate.sinks.registry import SinkPlug

__all__ = ["SINK", "KafkaSink"]

COMPACTED: Final = {"cleanup.policy": "compact"}
"""Of topics of rows, in every format: they hold the latest row per key, and no row is lost by its age."""


class KafkaSink:
    """Topics of one cluster. ``options``: how records are written, and topics created."""

    def __init__(
        self,
        find: Callable[[], address.Target],
        *,
        options: SinkSpec,
        target: TargetCluster | None = None,
    ) -> None:
        """``find``: the cluster's address, which is asked for again after errors, because a connection may be changed.

        ``target``: what this process shares about the cluster, if it is not the usual.
        """
        self._find = find
        self._options = options
        self._target = target

    @property
    def _shared(self) -> TargetCluster:
        with as_sink_errors("using Kafka as a sink"):
            target = self._target or target_of(self._find())
            _ = target.cluster_id
        return target

    @property
    def _by_key(self) -> bool:
        """Whether the key decides on a record's partition, instead of the source's partition."""
        return self._options.partitions == "by-key"

    @property
    def _claims(self) -> Claims:
        return Claims(self._shared)

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """See Sink. A topic that is missing is created when an agent takes the table (``prepare``).

        The registry is asked before a feed is accepted only: a table whose schemas are known does not need it later.
        """
        shapes = {}
        if self._options.registry is not None and identity is not None:
            Subjects(self._options.registry).check()  # of its own: a password may have been corrected just now
        for table in tables:
            topic = topic_of(table)
            is_missing = False
            if identity is not None:
                check_not_reserved(topic, identity, self._shared.cluster_id, self._shared.progress)
                with as_sink_errors(f"checking topic {topic}"):
                    refuse_strangers(self._shared.ledger.read(topic), identity, topic, self._shared.progress)
                    is_missing = describe(self._shared.connection, topic) is None
                    if is_missing:
                        create(self._shared.connection, topic, self._wanted(None), only_check=True)
            shapes[table] = TableShape(table, {}, (), secondary_unique=False, is_missing=is_missing)
        _ = self._shared
        return shapes

    def check_sources(self, tables: Sequence[str], identity: FeedIdentity, reads: Callable[[str], bool]) -> None:
        """See OfTopics."""
        for table in tables:
            check_not_read(topic_of(table), identity, self._shared.cluster_id, reads)

    def schema_warnings(self, table: str, semantics: dict[str, str], key_columns: tuple[str, ...]) -> Iterable[str]:
        """See RegistersSchemas."""
        if self._options.registry is None:
            return ()
        return Subjects(self._options.registry).schema_warnings(topic_of(table), semantics, key_columns)

    def _wanted(self, partitions: int | None) -> Wanted:
        """How a missing topic is created. ``partitions``: the source topic's, if they are known."""
        options = self._options.topic
        given = options.partitions or (None if self._by_key else partitions)
        settings = {} if self._options.writes_events else COMPACTED
        return Wanted(
            given or BROKERS_DEFAULT, options.replication_factor or BROKERS_DEFAULT, settings | options.config
        )

    def prepare(self, claim: Claim, partitions: int) -> None:
        """See Preparing."""
        topic, target = topic_of(claim.table), self._shared
        check_not_reserved(topic, claim.identity, target.cluster_id, target.progress)
        check_not_read(topic, claim.identity, target.cluster_id, claim.topic.__eq__)
        with as_sink_errors(f"preparing topic {topic}"):
            found = describe(target.connection, topic)
            rows = target.ledger.read(topic).rows.get(place_of(claim, topic), {})
            ids = {row.target_id for row in rows.values() if row.incarnation >= claim.incarnation} - {None}
            if ids and (found is None or (found.id is not None and found.id not in ids)):
                raise lost_topic(topic, target.bootstrap, claim.identity.feed, exists=found is not None)
            wanted = self._wanted(partitions)
            there = wanted.partitions if found is None else found.partitions
            if there < partitions and not self._by_key:
                has = "would have" if found is None else "has"
                raise SinkRefusedError(
                    f"topic {topic} on Kafka at {target.bootstrap} {has} {there} partitions, and source topic "
                    f"{claim.topic} has {partitions}. Add partitions, or set sink.partitions: by-key"
                )
            if found is None:
                create(target.connection, topic, wanted)

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
            return KafkaStager(connect(self._find()), self._options)

    def committer(self) -> KafkaCommitter:
        """See DriverSink."""
        return KafkaCommitter(self._shared, self._claims, by_key=self._by_key)

    def writer(self) -> StagedWriter:
        """See Sink."""
        return StagedWriter(self)

    def close(self) -> None:
        """See Sink. What the process shares about the cluster stays."""


def _open(spec: SinkSpec, _password_file: Path | None, _keeps_session: bool) -> KafkaSink:
    return KafkaSink(partial(registry.target_of, spec), options=spec)


def _address(dsn: str) -> address.Address:
    """As a feed gives it. Raises SinkRefusedError."""
    try:
        return address_of(dsn)
    except DatabaseRefusedError as error:
        raise SinkRefusedError(str(error)) from error


SINK: Final = SinkPlug(
    summary="Kafka topics: flat JSON, CloudEvents, Avro or Debezium's events, in transactions (for read_committed)",
    writes=Writes.ON_DRIVER,
    options=frozenset({"connection", "format", "partitions", "password_file", "registry", "topic"}),
    schemes=(SCHEME,),
    address=_address,
    open=_open,
)
