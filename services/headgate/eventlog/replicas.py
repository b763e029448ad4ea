"""How many copies of a topic a cluster can hold: at most one per broker."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from headgate.eventlog.connection import KafkaConnection

__all__ = ["BROKERS_DEFAULT", "too_many_copies"]

BROKERS_DEFAULT: Final = -1
"""Partitions, or copies, as the broker is configured."""


def too_many_copies(connection: KafkaConnection, copies: int, error: KafkaException, proposal: str) -> str | None:
    """Why a topic cannot have ``copies`` (or the brokers' default), and what the cluster can hold, else None.

    ``proposal``: how to ask for fewer copies, with ``{copies}`` for their number. Asks the cluster for its brokers.
    Raises LogError.
    """
    if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
        return None
    brokers = len(connection.wait("counting its brokers", connection.admin.describe_cluster()).nodes)
    is_chosen = copies != BROKERS_DEFAULT
    if brokers < 1 or (is_chosen and brokers >= copies):
        return None
    have = "1 broker" if brokers == 1 else f"{brokers} brokers"
    cost = "The only copy is then lost with its broker" if brokers == 1 else "Every broker must then be up"
    many = f"{copies} copies need as many brokers" if is_chosen else "its default.replication.factor needs more brokers"
    return (
        f"{many}, and Kafka at {connection.bootstrap_servers} has {have}. "
        f"Add brokers, or {proposal.format(copies=brokers)}. {cost}"
    )
