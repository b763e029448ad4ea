"""A Java process that Python drives through Py4J, so that Headgate needs no compiled Java.

The process never outlives us: it ends as soon as its standard input is closed, which the operating system does for
us even under SIGKILL. It runs in a session of its own: Ctrl-C in a terminal reaches only us, and we stop it in order.
Py4J's own launcher is not used: it runs Python between fork and exec, and its reader thread may die.
"""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.java import Java
from headgate.provisioning.killed import await_killed
from headgate.provisioning.time_scale import scaled_seconds
from headgate.supervision.threads import BackgroundThread

# Shutdown hooks of an idle broker need 1.5 s (measured); past this the process is killed.
_EXIT_SECONDS = 60
# An idle machine takes 0.3 s. A JVM that does not name its port in this time hangs.
_START_SECONDS = 60
_TAIL_LINES = 15


class Jvm:
    """One running Java process; ``view`` is its packages and classes as Python attributes.

    What it prints goes to ``log_file``; ``on_line`` gets each line of its standard output as well.
    """

    def __init__(
        self,
        java: Java,
        classpath: Sequence[Path],
        options: Sequence[str],
        log_file: Path,
        on_line: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Start the process. Raises EmbeddedError, with the end of its log, when it does not come up."""
        self.log_file = log_file
        entries = ":".join([str(entry) for entry in (*pyspark_jars().glob("py4j-*.jar"), *classpath)])
        server = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(java.executable), *options, "-classpath", entries, *server],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        if self._process.stdin is None or self._process.stdout is None:
            raise EmbeddedError("the operating system gave no pipes to the Java process")
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        said = self._first_lines(2)  # port and token
        if not said[0].isdecimal():
            self._process.kill()
            self._end_process()
            self._stdout.close()
            raise EmbeddedError(f"{java.executable} did not start: {tail(log_file)}\nIts output is in {log_file}")
        # A pipe that is not read blocks, in the end, the process that writes to it.
        self._reader = BackgroundThread(self._read_output, on_line, name="jvm", detail=str(self.pid))
        self._reader.start()
        # Freeing Java's objects one by one from Python's garbage collector would continue after the process has ended;
        # the few that we hold are freed with it.
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(said[0]), auth_token=said[1], enable_memory_management=False)
        )

    @property
    def view(self) -> Any:
        """Java's packages, as in ``view.java.lang.System``."""
        return self._gateway.jvm

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._process.pid)

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def strings(self, *values: str) -> Any:
        """A Java String[]."""
        array = self._gateway.new_array(self.view.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def string_map(self, values: Mapping[str, str]) -> Any:
        """A Java HashMap of strings."""
        java_map = self.view.java.util.HashMap()
        for key, value in sorted(values.items()):
            java_map.put(key, value)
        return java_map

    def properties(self, values: Mapping[str, str]) -> Any:
        """A java.util.Properties."""
        properties = self.view.java.util.Properties()
        for key, value in sorted(values.items()):
            properties.setProperty(key, value)
        return properties

    def close(self) -> None:
        """End the process in order (its shutdown hooks run), by force when it takes too long. Idempotent."""
        self._gateway.close()
        self._end_process()

    def kill(self) -> None:
        """SIGKILL: nothing of Java's gets a chance. Idempotent."""
        self._process.kill()
        self._gateway.close()
        self._end_process()

    def _end_process(self) -> None:
        # The process ends at the end of its input.
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(scaled_seconds(_EXIT_SECONDS))
        except subprocess.TimeoutExpired:
            self._process.kill()
            await_killed(self._process, "a Java process")

    def _first_lines(self, count: int) -> list[str]:
        """What the process prints first; empty lines if it ends or hangs before it has printed them."""
        said, deadline = b"", time.monotonic() + scaled_seconds(_START_SECONDS)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while said.count(b"\n") < count and selector.select(max(0.0, deadline - time.monotonic())):
                # Byte by byte and past Python's buffer, so that what follows is left to the reader.
                if not (byte := os.read(self._stdout.fileno(), 1)):
                    break
                said += byte
        lines = [line.strip() for line in said.decode(errors="replace").split("\n")]
        return lines[:count] if len(lines) > count else [""] * count

    def _read_output(self, on_line: Callable[[str], None]) -> None:
        with self._stdout, self.log_file.open("a", encoding="utf-8", buffering=1) as log:
            for raw in self._stdout:
                line = raw.decode(errors="replace")
                log.write(line)
                on_line(line)


def reason(error: Py4JError) -> str:
    """What went wrong, in Java's words. Ask before the process ends; do not chain ``error``, which asks it again."""
    return str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else f"its process ended: {error}"


def pyspark_jars() -> Path:
    """The folder of the jars that are part of the pyspark wheel. Raises EmbeddedError."""
    # Without importing it, which takes half a second.
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise EmbeddedError("pyspark is not installed: install Headgate again, with its dependencies")
    return Path(found.origin).parent / "jars"


def tail(log_file: Path) -> str:
    """The last lines of a log, for an error message; empty when there is none."""
    if not log_file.is_file():
        return ""
    return "\n".join(log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:])
