"""A server out of the system's own packages, unpacked into the cache: nothing is installed, and root is not needed.

``apt-get`` fetches and checks the packages from the machine's own sources, ``dpkg -x`` unpacks them. Where the
machine keeps no lists of packages (images do not), a list of our own is fetched into the cache.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.provisioning.cache import cache_folder, exclusive
from headgate.provisioning.errors import ArtifactError

_APT_SECONDS: Final = 300
_DONE: Final = ".complete"
_TOOLS: Final = ("apt-get", "apt-cache", "dpkg", "dpkg-query")


def library_path(root: Path) -> str:
    """The value of LD_LIBRARY_PATH for programs below an unpacked ``root``."""
    return ":".join(str(folder) for folder in sorted({path.parent for path in root.glob("**/*.so.*")}))


def unpacked(package: str, program: str, instead: str, beside: Sequence[str] = ()) -> Path:
    """The folder that holds ``package``, and of its dependencies what the machine lacks; fetched on first use.

    ``program`` is the path (a pattern, where it differs between machines) of the executable or library that must find
    its libraries. Packages ``beside`` come into the same folder unchanged. ArtifactError names what is missing and
    ``instead`` as an alternative.
    """
    folder = cache_folder() / f"debian-{package}"
    if (folder / _DONE).exists():
        return folder
    with exclusive(cache_folder() / f"debian-{package}.lock"):
        if not (folder / _DONE).exists():
            missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
            if missing:
                raise ArtifactError(f"{package} is fetched by {missing[0]}, which this machine lacks: {instead}")
            shutil.rmtree(folder, ignore_errors=True)
            for abandoned in cache_folder().glob(f"debian-{package}-new-*"):
                shutil.rmtree(abandoned)
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f"debian-{package}-new-") as temporary:
                root = Path(temporary, "root")
                _Packages(Path(temporary), instead).unpack(package, program, root, beside)
                (root / _DONE).touch()
                root.rename(folder)
    return folder


class _Packages:
    def __init__(self, work: Path, instead: str) -> None:
        self._work = work
        self._instead = instead
        self._options: list[str] = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []

    def unpack(self, package: str, pattern: str, root: Path, beside: Sequence[str]) -> None:
        try:
            self._fetch([package, *beside])
        except ArtifactError:
            self._list_anew()
            self._fetch([package, *beside])
        self._open(root)
        program = next(root.glob(pattern), None)
        if program is None:
            raise ArtifactError(f"{package} has no {pattern}: {self._instead}")
        lacking = self._lacking(package) if self._unresolved(program) else []
        known = {package, *beside}
        while new := [name for name in lacking if name not in known]:
            self._fetch(new)
            self._open(root)
            known.update(new)
            # ldd does not see what modules of a language need, so their packages are taken whole.
            lacking = [needed for name in new for needed in self._lacking(name)] if beside else []
        unresolved = self._unresolved(program, library_path(root))
        if unresolved:
            raise ArtifactError(f"{program} of {package} finds no {', '.join(unresolved)}: {self._instead}")

    def _fetch(self, packages: Sequence[str]) -> None:
        self._run(["apt-get", *self._options, "--quiet", "download", *packages])

    def _list_anew(self) -> None:
        for name in ("lists/partial", "archives/partial"):
            (self._work / name).mkdir(parents=True)
        self._options += [
            "-o", f"Dir::State::lists={self._work}/lists", "-o", f"Dir::Cache={self._work}",
        ]  # fmt: skip
        self._run(["apt-get", *self._options, "--quiet", "update"])

    def _lacking(self, package: str) -> list[str]:
        """Direct dependencies that are not installed, by the name of the first alternative that can be had."""
        said = self._run(
            ["apt-cache", *self._options, "depends", "--no-recommends", "--no-suggests", "--no-conflicts",
             "--no-breaks", "--no-replaces", "--no-enhances", package]
        )  # fmt: skip
        named = [line.split(":", 1)[1].strip() for line in said.splitlines() if line.strip().startswith("Depends:")]
        installed = self._run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"]).splitlines()
        there = {line.split(" ")[0] for line in installed if line.endswith(" installed")}
        return [name for name in named if not name.startswith("<") and name not in there]

    def _open(self, root: Path) -> None:
        for archive in sorted(self._work.glob("*.deb")):
            self._run(["dpkg", "-x", str(archive), str(root)])
            archive.unlink()

    def _unresolved(self, program: Path, libraries: str = "") -> list[str]:
        said = self._run(["ldd", str(program)], environment={"LD_LIBRARY_PATH": libraries})
        return [line.split("=>")[0].strip() for line in said.splitlines() if line.endswith("not found")]

    def _run(self, command: Sequence[str], environment: dict[str, str] | None = None) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=self._work,
                env={**os.environ, "LC_ALL": "C", **(environment or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_APT_SECONDS,
                text=True,
            )
        except subprocess.CalledProcessError as error:
            raise ArtifactError(f"{' '.join(command[:1])} failed: {error.stderr.strip()}; {self._instead}") from error
        except (subprocess.TimeoutExpired, OSError) as error:
            raise ArtifactError(f"{command[0]}: {error}; {self._instead}") from error
        return done.stdout
