"""One coordinator's replay in a process of its own: how long it takes, and how much memory the process needs for it.

Started by control.py with the path of a dumped log and the number of its spans; prints one JSON object. The seconds are
processor time from the role's first turn until it serves; the memory is the process's peak, interpreter included.
"""

import json
import sys
import time
from pathlib import Path

from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.coordinator.core.machine import COORDINATOR
from headgate.eventlog.collector import collect_rarely
from headgate.runtime.machine import Now
from headgate.runtime.role import Role, RoleState
from headgate_lab.benchmarks.control_log import FileLog
from headgate_lab.worlds.kernel import role_settings


def main(path: Path, spans: int) -> None:
    """Replay and print."""
    collect_rarely()  # as a coordinator's process does
    log = FileLog(path)
    role = Role(role_settings(COORDINATOR_KIND, "replayed"), COORDINATOR, log, run_effect=lambda _effect: None)
    begun = time.process_time()
    while role.status.state is not RoleState.SERVING:
        clock = time.process_time() - begun
        role.turn(Now(clock, 0))
    used = time.process_time() - begun
    if len(role.view.spans) != spans:
        raise SystemExit(f"{len(role.view.spans)} spans were replayed, not {spans}")
    # Not getrusage's maximum, which starts at that of the process that started this one.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    peak_mib = int(peak.split()[1]) / 1024
    sys.stdout.write(json.dumps({"replay": used, "memory": peak_mib}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
