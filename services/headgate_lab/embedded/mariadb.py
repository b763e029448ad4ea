"""A real MariaDB out of Debian's packages (10.11 on Debian 12), unpacked into our cache and run from there.

Only `mariadb-server-core` and the libraries that the machine lacks are taken, 7 MB. The system tables are made as
`mariadb-install-db` makes them: by the server itself, from the scripts of the package. It listens on loopback and a
socket in its data folder, has one user, `root`, with a password made up at first start, and runs under a guard.
"""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.jvm import tail
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded import debian
from headgate_lab.embedded.guard import kill_guarded, start_guarded, stop_guarded
from headgate_lab.embedded.ports import HOST, free_ports, require_free

__all__ = ["EmbeddedMariadb"]

_PACKAGE: Final = "mariadb-server-core"
_PROGRAM: Final = "usr/sbin/mariadbd"
_SCRIPTS: Final = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
_INSTEAD: Final = "name a server of your own (HEADGATE_TEST_MARIADB=mysql://root:password@host:3306 for the tests)"
# The system tables take 2 s, a start 0.2 s (measured); crash recovery of a busy database may take longer.
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 60
_INSTALL_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.05


class EmbeddedMariadb:
    """One server. ``captured`` turns on the binary log so that changes can be captured; ``settings`` override ours.

    For the demo and the tests: it does not wait for the disk, so it survives kills but not power cuts.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        captured: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "mariadb.log"
        self.port = port
        self._captured = captured
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, creating the system tables on first use, and return when clients can connect.

        Raises PortTakenError, ArtifactError, or EmbeddedError with the end of the log.
        """
        if self._process is not None:
            raise EmbeddedError(f"MariaDB in {self.data_dir} is running already")
        if self.port is None:
            (self.port,) = free_ports(1)
        require_free(self.port, "MariaDB")
        root = debian.unpacked(_PACKAGE, _PROGRAM, _INSTEAD)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "tmp").mkdir(mode=0o700, exist_ok=True)
        if not (self.data_dir / "password").exists():
            self._install(root)
        with self.log_file.open("ab") as log:
            self._process = start_guarded(
                [*self._command(root), *self._arguments()],
                name="headgate-mariadb",
                signal_name="TERM",
                log=log,
                env=self._environment(root),
                cwd="/",
            )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def password(self) -> str:
        """The password of ``root``, made up when the data folder was created. Raises EmbeddedError before that."""
        try:
            return (self.data_dir / "password").read_text(encoding="utf-8")
        except OSError as error:
            raise EmbeddedError(f"MariaDB in {self.data_dir} has no password before its first start") from error

    @property
    def server_pid(self) -> int:
        """The server's process, which runs below its guard. Raises EmbeddedError unless it runs."""
        try:
            return int((self.data_dir / "mariadb.pid").read_text(encoding="ascii"))
        except OSError as error:
            raise EmbeddedError(f"MariaDB in {self.data_dir} is not running") from error

    def dsn(self, database: str = "") -> str:
        """The address of ``database`` for ``root``, with the password."""
        return f"mysql://root:{self.password}@{HOST}:{self.port}/{database}"

    def stop(self) -> None:
        """Stop in order: clients are disconnected, nothing is lost. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            stop_guarded(process, scaled_seconds(_STOP_SECONDS), f"MariaDB in {self.data_dir}")

    def kill(self) -> None:
        """SIGKILL the server, as a crash would; return when it is gone. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            kill_guarded(process)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _environment(self, root: Path) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": debian.library_path(root)}

    def _command(self, root: Path) -> list[str]:
        messages = root / "usr/share/mysql"
        return [
            str(root / _PROGRAM),
            "--no-defaults",  # first: nothing of the machine's own configuration is read
            f"--user={pwd.getpwuid(os.geteuid()).pw_name}",
            f"--datadir={self.data_dir / 'data'}",
            # A server that starts empties its folder of temporary tables, those of others that share it, too.
            f"--tmpdir={self.data_dir / 'tmp'}",
            f"--lc-messages-dir={messages}",
            f"--character-sets-dir={messages / 'charsets'}",
            f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
            "--innodb-log-file-size=32M",
            "--innodb-flush-log-at-trx-commit=2",
        ]

    def _arguments(self) -> list[str]:
        settings = {
            "bind-address": HOST,
            "port": str(self.port),
            # Relative to the data folder: a path may be at most 107 characters long, and ours is anybody's guess.
            "socket": "mariadb.sock",
            "pid-file": str(self.data_dir / "mariadb.pid"),
            "skip-name-resolve": "1",
            "server-id": "1",
            "innodb-buffer-pool-size": "64M",
            "performance-schema": "0",
            # Its default asks for more files than most machines give.
            "table-open-cache": "400",
            **({"log-bin": "binlog", "binlog-format": "ROW", "binlog-row-image": "FULL"} if self._captured else {}),
            **({"binlog-row-metadata": "FULL"} if self._captured else {}),
            **self._settings,
        }
        return [f"--{name}={value}" for name, value in sorted(settings.items())]

    def _install(self, root: Path) -> None:
        shutil.rmtree(self.data_dir / "data", ignore_errors=True)
        (self.data_dir / "data").mkdir(mode=0o700)
        password = secrets.token_hex(16)
        scripts = [(root / "usr/share/mysql" / name).read_text(encoding="utf-8") for name in _SCRIPTS]
        user = f"root@'{HOST}'"
        # A statement per line, as a server that is being set up reads them.
        statements = "\n".join(
            [
                "CREATE DATABASE mysql;",
                "USE mysql;",
                "SET @auth_root_socket=NULL;",
                *scripts,
                "DELETE FROM global_priv WHERE User <> 'mariadb.sys';",
                "DELETE FROM proxies_priv;",
                "FLUSH PRIVILEGES;",
                f"CREATE USER {user} IDENTIFIED BY '{password}';",
                f"GRANT ALL ON *.* TO {user} WITH GRANT OPTION;",
                "",
            ]
        )
        try:
            subprocess.run(
                [*self._command(root), "--bootstrap"],
                input=statements.encode(),
                env=self._environment(root),
                cwd="/",
                capture_output=True,
                check=True,
                timeout=scaled_seconds(_INSTALL_SECONDS),
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = (error.stderr or b"").decode(errors="replace").strip()
            raise EmbeddedError(f"MariaDB's system tables were not made in {self.data_dir}: {error}: {said}") from error
        password_file = self.data_dir / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(password, encoding="utf-8")

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        """Return when the server greets a connection."""
        seconds = scaled_seconds(_START_SECONDS)
        deadline = time.monotonic() + seconds
        while process.poll() is None:
            with suppress(OSError), socket.create_connection((HOST, self.port or 0), timeout=_POLL_SECONDS) as client:
                client.settimeout(seconds)
                if client.recv(1):
                    return
            if time.monotonic() > deadline:
                raise EmbeddedError(f"MariaDB is not ready after {seconds:g} s: {tail(self.log_file)}")
            time.sleep(_POLL_SECONDS)
        raise EmbeddedError(f"MariaDB did not start: {tail(self.log_file)}\nIts log is {self.log_file}")
