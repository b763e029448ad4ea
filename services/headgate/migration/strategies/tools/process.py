"""A schema change's program as a child of the owner: its folder, its process group, what it prints.

The folder is the migration's own, readable by no other user, and its path is on the program's command line. So a
process is identified by that, and not by a number that the system may have given to another process since: the
migration's next owner on this machine finds what the last owner has left running, and ends it. Programs run in a
process group of their own, which is killed as a whole.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import psutil

from headgate.migration.strategies.contract import DatabaseUnavailableError, RefusedError
from headgate.migration.strategies.tools.output import shown

KILL_SECONDS_MAX: Final = 10.0
"""For a killed process to be gone; longer only if it hangs in the kernel, and then it is asked again."""

TAIL_BYTES: Final = 64 * 1024
LINES_MAX: Final = 60
CHARACTERS_MAX: Final = 300
"""Of what a program prints, so much is kept on the log: its last lines."""

_OUTPUT: Final = "output.log"
_PROGRESS: Final = re.compile(r"\b\d+% .*remain$")
"""Lines that show how far it is: they are read, not kept."""


class ToolFolder:
    """What belongs to one migration's program on this machine."""

    def __init__(self, root: Path, migration: str) -> None:
        """Nothing is made yet. ``root`` is this cluster's, of this user."""
        self.path = root / sha256(migration.encode()).hexdigest()[:16]

    def make(self) -> None:
        """Make an empty folder. Raises RefusedError if another user has one in its place."""
        self.remove()
        for folder in (self.path.parent, self.path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
            if folder.is_symlink() or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise RefusedError(f"{folder} is not a folder of this user's alone: remove it, or set another TMPDIR")

    def remove(self) -> None:
        """Remove the folder, whatever is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name: str, text: str, *, is_program: bool = False) -> Path:
        """Write a file that no other user can read."""
        path = self.path / name
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if is_program else 0o600), "w"
        ) as file:
            file.write(text)
        return path

    def write_json(self, name: str, value: Any) -> Path:
        """The same, as JSON."""
        return self.write(name, json.dumps(value))

    def switch(self, name: str, *, is_on: bool) -> None:
        """A flag file: there, or not."""
        path = self.path / name
        if is_on:
            path.touch(mode=0o600)
        else:
            path.unlink(missing_ok=True)

    def output(self) -> Path:
        """Where the program prints to."""
        return self.path / _OUTPUT

    def said(self) -> list[str]:
        """The last lines that it has printed, those about progress too."""
        try:
            with self.output().open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - TAIL_BYTES, 0))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        return [line.strip()[:CHARACTERS_MAX] for line in text.splitlines() if line.strip()]

    def kept(self) -> list[str]:
        """Those of ``said`` that are worth keeping, without values of rows."""
        return shown(line for line in self.said() if not _PROGRESS.search(line))[-LINES_MAX:]

    def end_left_over(self) -> None:
        """End what runs with this folder, whatever started it. Raises DatabaseUnavailableError if it does not end."""
        found = [process for process in psutil.process_iter() if self._is_of(process)]
        for process in found:
            _signal_group(process.pid, signal.SIGKILL)
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _, alive = psutil.wait_procs(found, timeout=KILL_SECONDS_MAX)
        if alive:
            raise DatabaseUnavailableError(f"process {alive[0].pid} of the migration was killed, but does not end")

    def _is_of(self, process: psutil.Process) -> bool:
        try:
            return process.pid != os.getpid() and any(str(self.path) in word for word in process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return False


class ToolProcess:
    """One run of the program."""

    def __init__(self, folder: ToolFolder, command: Sequence[str], environment: dict[str, str]) -> None:
        """Start it. Raises OSError."""
        self._folder = folder
        with folder.output().open("ab") as out:
            self._process = subprocess.Popen(
                [*command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **environment},
                cwd=folder.path,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its number, and its process group's."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def hold(self, *, is_held: bool) -> None:
        """Suspend the group, or resume it."""
        if self._process.poll() is None:
            _signal_group(self._process.pid, signal.SIGSTOP if is_held else signal.SIGCONT)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it and its children. Raises DatabaseUnavailableError if it does not end."""
        if self._process.poll() is None:
            _signal_group(self._process.pid, signal.SIGKILL)
            if not self.wait(KILL_SECONDS_MAX):
                raise DatabaseUnavailableError(f"process {self.pid} was killed, but does not end")


def _signal_group(pid: int, number: signal.Signals) -> None:
    """A signal to the group that this process leads, if it leads one."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
