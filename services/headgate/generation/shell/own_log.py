"""Writers and readers that a program opens by the address of a Kafka cluster: the log is theirs, and they close it."""

from collections.abc import Callable
from typing import Self

from headgate.eventlog.connection import KafkaProperty
from headgate.eventlog.kafka import KafkaLog
from headgate.generation.shell.tail import open_generation_log

__all__ = ["WithOwnLog"]


class WithOwnLog:
    """Something on a log that it closes, if it was opened by an address."""

    _own_log: KafkaLog | None = None

    @classmethod
    def _opened(
        cls,
        make: Callable[[KafkaLog], Self],
        bootstrap: str,
        cluster: str,
        kafka: dict[str, KafkaProperty] | None,
    ) -> Self:
        """What ``make`` makes on the cluster's log. Raises LogError, and whatever ``make`` raises."""
        log = open_generation_log(bootstrap, cluster, kafka)
        try:
            opened = make(log)
        except BaseException:
            log.close()
            raise
        opened._own_log = log
        return opened

    def _close_own_log(self) -> None:
        """Close the log if this object opened it. Idempotent."""
        log, self._own_log = self._own_log, None
        if log is not None:
            log.close()
