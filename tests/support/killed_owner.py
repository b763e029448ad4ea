"""``headgate`` that kills itself before it commits the N-th record with a key of one class, once per marker file.

    python -m support.killed_owner MARKER CLASS N serve generation …

A test that kills an owner from outside, between two records, is too late on a fast machine and under load.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from headgate.cli.main import app
from headgate.eventlog.log import Placed
from headgate.eventlog.writers import KafkaTransactionalWriter


def kill_before(marker: Path, key_class: str, nth: int) -> None:
    """SIGKILL this process before record ``nth`` (from 1) of the class; whoever finds ``marker`` there goes on."""
    commit = KafkaTransactionalWriter.commit
    seen = 0

    def counted(self: KafkaTransactionalWriter, placed: Sequence[Placed]) -> list[int]:
        nonlocal seen
        seen += sum(type(each.fact.key).__name__ == key_class for each in placed)
        if seen >= nth and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return commit(self, placed)

    KafkaTransactionalWriter.commit = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    marker, key_class, nth, *arguments = sys.argv[1:]
    kill_before(Path(marker), key_class, int(nth))
    sys.argv = ["headgate", *arguments]
    app()
