"""The tutorials, as a stranger does them: every command of a page in order, in an empty folder, from the wheels on.

The databases are the test's own; their addresses and administrators' passwords replace those of the page. A block of
commands that is followed by a block of output is repeated until the output has come, because rows take a moment.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from fixtures.servers import reachable_folder
from headgate.provisioning.cache import cache_folder
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.postgres import EmbeddedPostgres
from support.pages import ROOT, TUTORIALS, Block, blocks_of
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.long]

UV = Path(sys.executable).with_name("uv")
COMMAND_SECONDS_MAX = scaled_seconds(600)
OUTPUT_SECONDS_MAX = 600.0
"""For one command, and until an output has come."""


def shows(output: str, expected: str) -> bool:
    """Whether each line of ``expected`` is part of the output, whatever the blanks between the words."""
    said = " ".join(output.split())
    return all(" ".join(line.split()) in said for line in expected.splitlines())


class Reader:
    """Somebody who types what the page says, in ``folder``. What is exported counts in both of the terminals."""

    def __init__(self, folder: Path, environment: Mapping[str, str], replaced: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._replaced = replaced
        self._exported: list[str] = []
        self._up: subprocess.Popen[bytes] | None = None
        self._up_said = folder / "up.log"

    def follow(self, blocks: Sequence[Block]) -> None:
        """Type every block."""
        shell = [block for block in blocks if block.language in ("sh", "text")]
        for block, after in zip(shell, [*shell[1:], Block("sh", "")], strict=True):
            if block.language == "sh":
                self._type(self._with_own_addresses(block.text), after.text if after.language == "text" else None)

    def interrupt(self) -> None:
        """Press Ctrl-C where ``headgate up`` runs."""
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            code = self._up.wait(COMMAND_SECONDS_MAX)
            assert code == 0, self._up_said.read_text()
            self._up = None

    def _type(self, text: str, expected: str | None) -> None:
        if text.startswith("headgate up") and "--remove" not in text:
            self._start(text, expected or "")
            return
        if "--remove" in text:
            self.interrupt()
        if expected is None:
            done = self._run(text)
            assert done.returncode == 0, f"{text}{done.stdout}{self._log()}"
        else:
            eventually(
                lambda: shows(self._run(text).stdout, expected),
                lambda: f"{text}{self._run(text).stdout}instead of\n{expected}{self._log()}",
                OUTPUT_SECONDS_MAX,
            )
        self._exported += [line for line in text.splitlines() if line.startswith(("export ", ". "))]

    def _start(self, text: str, expected: str) -> None:
        with self._up_said.open("wb") as said:
            self._up = subprocess.Popen(
                self._shell(f"exec {text}"), cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        up = self._up

        def is_up() -> bool:
            assert up.poll() is None, self._log()
            return shows(self._up_said.read_text(), expected)

        eventually(is_up, self._log, OUTPUT_SECONDS_MAX)

    def _run(self, text: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._shell(text), cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS_MAX, check=False,
        )  # fmt: skip

    def _shell(self, text: str) -> list[str]:
        return ["bash", "-e", "-c", "\n".join([*self._exported, text])]

    def _with_own_addresses(self, text: str) -> str:
        for shown, own in self._replaced.items():
            text = text.replace(shown, own)
        return text

    def _log(self) -> str:
        return f"\n--- headgate up\n{self._up_said.read_text()}" if self._up_said.exists() else ""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dist")
    build = [str(UV), "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True)
    return sorted(folder.glob("*.whl"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def reader(stack: ExitStack, wheels: list[Path], programs: Sequence[Path], replaced: Mapping[str, str]) -> Reader:
    """A reader in an empty folder that has only the wheels, on a machine that has uv and a client of the database."""
    folder = stack.enter_context(reachable_folder())
    home, work = folder / "home", folder / "work"
    for each in (home / "bin", work):
        each.mkdir(parents=True)
    (home / "bin" / "uv").symlink_to(UV)
    for wheel in wheels:
        shutil.copy(wheel, work)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADGATE_", "PG", "VIRTUAL_"))}
    environment = kept | {
        "PATH": ":".join(map(str, (home / "bin", *programs, *os.defpath.split(":")))),
        "UV_TOOL_DIR": str(home / "tools"),
        "UV_TOOL_BIN_DIR": str(home / "bin"),
        "UV_PYTHON": sys.executable,
        # The versions that were tested, which are in uv's cache.
        "UV_CONSTRAINT": str(ROOT / "requirements.lock"),
        "HEADGATE_CACHE": str(cache_folder()),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    found = Reader(work, environment, replaced)
    stack.callback(found.interrupt)
    return found


@pytest.mark.timeout(3 * COMMAND_SECONDS_MAX)
def test_a_postgresql_of_ones_own(stack: ExitStack, wheels: list[Path]) -> None:
    folder = stack.enter_context(reachable_folder())
    source = stack.enter_context(EmbeddedPostgres(folder / "source", logical=True))
    sink = stack.enter_context(EmbeddedPostgres(folder / "sink"))
    replaced: dict[str, str] = {}
    for shown, server in (("db.example:5432", source), ("warehouse.example:5432", sink)):
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        replaced[f"{shown}:*:postgres:admins-secret"] = f"127.0.0.1:{server.port}:*:postgres:{server.password}"
        replaced[shown] = f"127.0.0.1:{server.port}"
    reader(stack, wheels, [source.programs], replaced).follow(blocks_of(TUTORIALS / "postgresql.md"))


@pytest.mark.skipif(shutil.which("mariadb-dump") is None, reason="mariadb-client is not installed")
@pytest.mark.timeout(3 * COMMAND_SECONDS_MAX)
def test_a_mariadb_of_ones_own(stack: ExitStack, wheels: list[Path]) -> None:
    folder = stack.enter_context(reachable_folder())
    source = stack.enter_context(EmbeddedMariadb(folder / "source", captured=True))
    sink = stack.enter_context(EmbeddedMariadb(folder / "sink"))
    replaced: dict[str, str] = {}
    for shown, secret, server in (
        ("db.example", "source-admins-secret", source),
        ("warehouse.example", "sink-admins-secret", sink),
    ):
        replaced[f"host = {shown}\nport = 3306"] = f"host = 127.0.0.1\nport = {server.port}"
        replaced[secret] = server.password
        replaced[f"{shown}:3306"] = f"127.0.0.1:{server.port}"
    reader(stack, wheels, [], replaced).follow(blocks_of(TUTORIALS / "mariadb.md"))
