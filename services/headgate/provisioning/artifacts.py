"""The jars that no wheel brings: named one by one, with their sha256, in `pins.json`; nothing else is ever used.

`ensure("kafka")` returns them, fetching what is missing on first use and working offline from then on. A set
appears in the cache folder whole or not at all, and is checked again each time it is asked for.

`python -m headgate.provisioning.artifacts --write-pins` resolves the sets from their roots and writes the list again:
look at the difference before you commit it, for that list is what users trust. Without the option the sets are fetched.
"""

import argparse
import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from headgate.provisioning import ivy
from headgate.provisioning.cache import cache_folder, exclusive, write_atomically
from headgate.provisioning.errors import ArtifactError
from headgate.provisioning.ivy import Coordinate
from headgate.provisioning.jvm import pyspark_jars

ArtifactSet = Literal[
    "kafka",
    "kafka-3.9",
    "debezium-postgres",
    "debezium-mariadb",
    "spark-kafka",
    "spark-avro",
    "spark-delta",
    "spark-iceberg",
    "flink",
    "avro-converter",
    "mermaid",
]
# Called with the set's name, the number of files that are there, and the number of files in all.
Progress = Callable[[str, int, int], None]
# Of each set, by coordinate, the sha256 of the file.
Pins = Mapping[str, Mapping[str, str]]

_PINS_FILE = Path(__file__).with_name("pins.json")
_KAFKA = "4.3.1"
_KAFKA_OLD = "3.9.1"
_DEBEZIUM = "3.6.0.Final"
# The MariaDB connector's last version whose whole dependency set can be had.
_DEBEZIUM_MARIADB = "3.5.0.Final"
_SPARK = "4.0.0"
_FLINK = "2.0.0"
_APICURIO = "2.6.13.Final"
_ROOTS: dict[ArtifactSet, tuple[Coordinate, ...]] = {
    "kafka": (
        Coordinate("org.apache.kafka", "kafka_2.13", _KAFKA),
        Coordinate("org.apache.kafka", "connect-runtime", _KAFKA),
        Coordinate("org.apache.kafka", "connect-json", _KAFKA),
        Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        Coordinate("org.apache.logging.log4j", "log4j-core", "2.25.4"),
    ),
    # The oldest broker that the tests are run on, in a container (infra/docker/local-images).
    "kafka-3.9": (
        Coordinate("org.apache.kafka", "kafka_2.13", _KAFKA_OLD),
        Coordinate("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ),
    "debezium-postgres": (Coordinate("io.debezium", "debezium-connector-postgres", _DEBEZIUM),),
    "debezium-mariadb": (Coordinate("io.debezium", "debezium-connector-mariadb", _DEBEZIUM_MARIADB),),
    # For tests, with the registry of embedded/registry.py. (Named alone, the first brings older ones of the others.)
    "avro-converter": (
        Coordinate("io.apicurio", "apicurio-registry-utils-converter", _APICURIO),
        Coordinate("io.apicurio", "apicurio-registry-client", _APICURIO),
        Coordinate("io.apicurio", "apicurio-registry-serdes-avro-serde", _APICURIO),
        Coordinate("io.apicurio", "apicurio-registry-serdes-jsonschema-serde", _APICURIO),
    ),
    "spark-kafka": (Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", _SPARK),),
    # For the example that reads control topics by Spark's from_avro; lanes do without it.
    "spark-avro": (Coordinate("org.apache.spark", "spark-avro_2.13", _SPARK),),
    # For the peers in `headgate bench lake`; Headgate writes lakes without them.
    "spark-delta": (Coordinate("io.delta", "delta-spark_2.13", "4.0.1"),),
    "spark-iceberg": (Coordinate("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.11.0"),),
    # A peer in `headgate bench peers`.
    "flink": (
        *(
            Coordinate("org.apache.flink", f"flink-{name}", _FLINK)
            for name in (
                "clients",
                "connector-base",
                "json",
                "table-api-java-bridge",
                "table-planner-loader",
                "table-runtime",
            )
        ),
        Coordinate("org.apache.flink", "flink-sql-connector-kafka", "4.0.1-2.0"),
        Coordinate("org.apache.flink", "flink-connector-jdbc-core", "4.0.0-2.0"),
        Coordinate("org.apache.flink", "flink-connector-jdbc-postgres", "4.0.0-2.0"),
        Coordinate("org.postgresql", "postgresql", "42.7.7"),
    ),
    # Draws the diagrams of the built documents; the script in the jar needs none of the dependencies that it declares.
    "mermaid": (Coordinate("org.webjars.npm", "mermaid", "11.14.0"),),
}

_ALONE = ("mermaid",)

_FOR_SPARK = ("spark-kafka", "spark-avro", "spark-delta", "spark-iceberg")

_PLUGINS = ("debezium-postgres", "debezium-mariadb", "avro-converter")


def ensure(name: ArtifactSet, progress: Progress = lambda _name, _done, _all: None) -> tuple[Path, ...]:
    """The jars of a set, verified, in sorted order; fetched first if they are not there. Raises ArtifactError."""
    pins = {Coordinate.parse(text): digest for text, digest in sorted(_read_pins()[name].items())}
    folder = _folder(name, pins)
    # A set that is there needs no lock, so a complete cache may also be read-only.
    if not folder.is_dir():
        with exclusive(cache_folder() / f"{name}.lock"):
            if not folder.is_dir():
                _fetch(name, pins, folder, progress)
    problem = _problem(folder, pins)
    if problem is not None:
        raise ArtifactError(f"{problem} (pinned in {_PINS_FILE}). Remove {folder.parent}: the set is fetched again")
    progress(name, len(pins), len(pins))
    return tuple(folder / file_name for file_name in sorted(one.file_name for one in pins))


def problem_of(name: ArtifactSet) -> str | None:
    """What is wrong with a set in the cache, None if it is complete. Fetches nothing. Raises EmbeddedError."""
    pins = {Coordinate.parse(text): digest for text, digest in sorted(_read_pins()[name].items())}
    folder = _folder(name, pins)
    return _problem(folder, pins) if folder.is_dir() else f"{folder} does not exist: the jars were not fetched yet"


def is_fetched(name: ArtifactSet) -> bool:
    """Whether the set is in the cache, complete or not. Raises EmbeddedError."""
    pins = {Coordinate.parse(text): digest for text, digest in sorted(_read_pins()[name].items())}
    return _folder(name, pins).is_dir()


def plugin_path(name: ArtifactSet, progress: Progress = lambda _name, _done, _all: None) -> Path:
    """A set as an entry of Connect's ``plugin.path``: a folder with one plugin's folder in it."""
    return ensure(name, progress)[0].parent.parent


def _read_pins() -> Pins:
    pins: Pins = json.loads(_PINS_FILE.read_text(encoding="utf-8"))
    return pins


def _folder(name: str, pins: Mapping[Coordinate, str]) -> Path:
    # Another list is another folder: versions of Headgate share a cache without disturbing each other.
    listed = "\n".join(f"{one} {digest}" for one, digest in pins.items())
    return cache_folder() / f"{name}-{hashlib.sha256(listed.encode()).hexdigest()[:12]}" / name


def _fetch(name: str, pins: Mapping[Coordinate, str], folder: Path, progress: Progress) -> None:
    work = cache_folder() / f"ivy-{name}"
    kept = sum(1 for _ in work.glob("cache/**/*.jar"))
    done = min(kept, len(pins))
    progress(name, done, len(pins))

    def arrived() -> None:
        nonlocal done
        done = min(done + 1, len(pins))
        progress(name, done, len(pins))

    for abandoned in cache_folder().glob(f"{name}-new-*"):
        shutil.rmtree(abandoned)
    found = ivy.fetch(list(pins), work, arrived)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f"{name}-new-") as temporary:
        complete = Path(temporary, "set", name)
        complete.mkdir(parents=True)
        for one, local in found.items():
            shutil.copyfile(local, complete / one.file_name)
        problem = _problem(complete, pins)
        if problem is not None:
            # What was fetched is not what was pinned: the next attempt must not start from it.
            ivy.discard(work)
            raise ArtifactError(
                f"{problem} (pinned in {_PINS_FILE}): it was altered on its way here, or the list is wrong. Nothing "
                "was kept; try again. If it happens again, look at the proxy between this machine and the registry"
            )
        complete.parent.rename(folder.parent)
    ivy.discard(work)


def _problem(folder: Path, pins: Mapping[Coordinate, str]) -> str | None:
    """What keeps the folder from holding exactly the pinned files with exactly the pinned content."""
    pinned = {one.file_name: digest for one, digest in pins.items()}
    present = {path.name for path in folder.iterdir()}
    for file_name in sorted(present - set(pinned)):
        return f"{folder / file_name} is not in the pinned list"
    for file_name in sorted(set(pinned) - present):
        return f"{folder / file_name} is missing"
    for file_name, digest in sorted(pinned.items()):
        found = _sha256(folder / file_name)
        if found != digest:
            return f"{file_name} has sha256 {found}, expected is {digest}"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _write_pins() -> None:
    pins: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-pins-") as work:
        found = {
            name: ivy.fetch(roots, Path(work, name), lambda: None)
            if name in _ALONE
            else ivy.resolve(roots, Path(work, name))
            for name, roots in _ROOTS.items()
        }
        # A plugin must not bring another copy of what the worker has; Spark has most of its connector's jars itself.
        of_kafka = {(one.organisation, one.name) for one in found["kafka"]}
        of_pyspark = [path.name for path in pyspark_jars().iterdir()]
        for name, jars in found.items():
            pins[name] = {
                str(one): _sha256(local)
                for one, local in sorted(jars.items())
                if not (name in _PLUGINS and (one.organisation, one.name) in of_kafka)
                and not (name in _FOR_SPARK and _is_among(one.name, of_pyspark))
            }
    write_atomically(_PINS_FILE, (json.dumps(pins, indent=1) + "\n").encode())


def _is_among(name: str, file_names: Sequence[str]) -> bool:
    """Whether one of the files is this jar in whatever version."""
    return any(re.fullmatch(re.escape(name) + r"-\d.*\.jar", file_name) for file_name in file_names)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m headgate.provisioning.artifacts", description=__doc__)
    parser.add_argument("--write-pins", action="store_true", help="resolve the sets and write the pinned list again")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"which: {', '.join(get_args(ArtifactSet))} [all]")
    given = parser.parse_args()
    if given.write_pins:
        _write_pins()
        return
    unknown = sorted(set(given.sets) - set(get_args(ArtifactSet)))
    if unknown:
        parser.error(f"no set is called {unknown[0]}; choose from {', '.join(get_args(ArtifactSet))}")
    for name in given.sets or get_args(ArtifactSet):
        ensure(name, lambda set_name, done, total: print(f"{set_name}: {done} of {total}", file=sys.stderr))  # noqa: T201
        print(f"{name}: {len(ensure(name))} jars")  # noqa: T201


if __name__ == "__main__":
    _main()
