"""Whether a process has ended: asked in two steps it may end, or be collected, between them."""

import psutil

from headgate_lab.parts.processes import lives


def has_ended(process: psutil.Process | int) -> bool:
    """``process``, or a process id: nothing of it runs any more; its parent may still have to collect it."""
    try:
        return not lives(psutil.Process(process) if isinstance(process, int) else process)
    except psutil.NoSuchProcess:
        return True
