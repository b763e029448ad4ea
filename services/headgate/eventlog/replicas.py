"""How many copies of a topic a cluster can hold: at most one per broker."""

from confluent_kafka import KafkaError, KafkaException

from headgate.eventlog.connection import KafkaConnection

__all__ = ["too_many_copies"]


def too_many_copies(connection: KafkaConnection, copies: int, error: KafkaException, proposal: str) -> str | None:
    """Why a topic cannot have ``copies``, and what the cluster can hold. None if ``error`` has another cause.

    ``proposal``: how to ask for fewer copies, with ``{copies}`` for their number. Asks the cluster for its brokers.
    Raises LogError.
    """
    if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
        return None
    brokers = len(connection.wait("counting its brokers", connection.admin.describe_cluster()).nodes)
    if not 0 < brokers < copies:
        return None
    have = "1 broker" if brokers == 1 else f"{brokers} brokers"
    cost = "The only copy is then lost with its broker" if brokers == 1 else "Every broker must then be up"
    return (
        f"{copies} copies need as many brokers, and Kafka at {connection.bootstrap_servers} has {have}. "
        f"Add brokers, or {proposal.format(copies=brokers)}. {cost}"
    )
