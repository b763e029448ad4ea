"""The settings that all services have which this machine runs for a demo, a campaign or a benchmark."""

from pathlib import Path

from headgate.provisioning.java import java_home_for_spark
from headgate_lab.parts.connections import CONNECTIONS_FILE

__all__ = ["service_settings"]


def service_settings(bootstrap: str, folder: Path, *, master: str, **more: str) -> dict[str, str]:
    """Variables for a cluster with one shard on a broker without replicas, and ``more``, which override them.

    ``folder`` has Spark's scratch, the secrets and the file of connections. Ports for HTTP are free ones.
    """
    return {
        "HEADGATE_BOOTSTRAP": bootstrap,
        "HEADGATE_SHARDS": "1",
        "HEADGATE_REPLICATION_FACTOR": "1",
        "HEADGATE_HTTP__PORT": "0",
        "HEADGATE_SPARK__MASTER": master,
        "HEADGATE_SPARK__SCRATCH": str(folder),
        "HEADGATE_SECRETS_DIR": str(folder),
        "HEADGATE_CONNECTIONS": str(folder / CONNECTIONS_FILE),
        "JAVA_HOME": str(java_home_for_spark()),
        **more,
    }
