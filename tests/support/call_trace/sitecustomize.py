"""Notes which functions of ours every process calls, Spark's Python workers too; summary.py reads it.

    CALL_TRACE=/tmp/calls PYTHONPATH=tests/support/call_trace .venv/bin/pytest -p no:randomly tests/integration/…

Python imports this module by its name when it starts. A file per process and thread, a line per call; a call that
repeats the one before is left out, as are comprehensions and what runs while a module is imported.
"""

import os
import sys
import threading
from pathlib import Path
from types import FrameType

_FOLDER = os.environ.get("CALL_TRACE")
_LEFT_OUT = frozenset({"<module>", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "__init__"})
_notes = threading.local()


def _note(frame: FrameType, event: str, _argument: object) -> None:
    # At the interpreter's end a module may have lost its names already.
    module = (frame.f_globals or {}).get("__name__") or ""
    if event != "call" or not module.startswith("headgate.") or frame.f_code.co_name in _LEFT_OUT:
        return
    call = f"{module.removeprefix('headgate.')}:{frame.f_code.co_name}"
    # A process that was forked has its parent's notes.
    if getattr(_notes, "process", None) != os.getpid():
        _notes.process, _notes.last = os.getpid(), ""
        name = f"{os.getpid()}-{threading.current_thread().name}.txt".replace("/", "_")
        # A number, for a file object that nobody closes would be warned about.
        _notes.file = os.open(Path(str(_FOLDER), name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if call != _notes.last:
        _notes.last = call
        os.write(_notes.file, f"{call}\n".encode())


if _FOLDER:
    threading.setprofile(_note)
    sys.setprofile(_note)
