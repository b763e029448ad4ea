"""The progress topic of a target cluster: which Headgate clusters use it, and how it is removed once only one does."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from confluent_kafka import KafkaError

from headgate.databases.address import Target
from headgate.databases.kafka.cluster import connect
from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection, code_of
from headgate.eventlog.log import LogError
from headgate.sinks.kafka.progress import PROGRESS_TOPIC
from headgate.sinks.kafka.target import Ledger
from headgate.sinks.kafka.topics import check_cluster, describe

__all__ = ["ProgressTopic", "opened_progress"]


class ProgressTopic:
    """The topic, over one connection. Methods raise SinkError, LogError."""

    def __init__(self, connection: KafkaConnection, name: str) -> None:
        self._connection = connection
        self.name = name

    @property
    def exists(self) -> bool:
        """Whether a feed has ever been written to this cluster."""
        return describe(self._connection, self.name) is not None

    def other_clusters(self, cluster_id: str) -> tuple[str, ...]:
        """Clusters of Headgate that have records in it, beside this one."""
        with closing(Ledger(self._connection, self.name)) as ledger:
            view = ledger.read(None)
        clusters = {place.cluster for place in view.rows} | {cluster for cluster, _ in view.removed}
        return tuple(sorted(clusters - {cluster_id}))

    def delete(self) -> None:
        """Delete it with what it holds of any cluster."""
        topics = self._connection.admin.delete_topics([self.name], request_timeout=ADMIN_SECONDS_MAX)
        try:
            self._connection.wait(f"deleting topic {self.name}", topics[self.name])
        except LogError as error:
            if code_of(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


@contextmanager
def opened_progress(at: Target, name: str = PROGRESS_TOPIC) -> Iterator[ProgressTopic]:
    """The topic at that cluster, once its brokers are known to be permitted. Raises DatabaseRefusedError, LogError."""
    with closing(connect(at)) as connection:
        check_cluster(connection, at)
        yield ProgressTopic(connection, name)
