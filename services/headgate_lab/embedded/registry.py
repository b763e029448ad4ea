"""A schema registry for tests and trials: Apicurio's, in memory, in a Java process of its own, and its Avro converter.

It answers under Confluent's REST interface too. Its archive (142 MB) is pinned by its sha256 and fetched on first use.
"""

import zipfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from py4j.protocol import Py4JError

from headgate.provisioning import artifacts
from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.ivy import Coordinate
from headgate.provisioning.java import find_java
from headgate.provisioning.jvm import Jvm, reason
from headgate_lab.embedded.plugin_archive import Archive, ensure_archive
from headgate_lab.embedded.ports import HOST, free_ports, require_free

_VERSION: Final = "2.6.13.Final"
REGISTRY: Final = Archive(
    "apicurio-registry",
    Coordinate("io.apicurio", "apicurio-registry-app", _VERSION),
    "all",
    "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba",
)
# Enough for some thousand schemas; the server is small, its libraries are not.
_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CONVERTER: Final = "io.apicurio.registry.utils.converter.AvroConverter"


class EmbeddedRegistry:
    """One registry; ``url`` speaks Confluent's interface, ``native_url`` the one that Apicurio's converter wants."""

    def __init__(self, data_dir: Path) -> None:
        """``data_dir`` takes the log; schemas are gone with the process."""
        self._data_dir = data_dir
        self._jvm: Jvm | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """What a feed's ``source.registry.url`` is."""
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    @property
    def native_url(self) -> str:
        """What ``apicurio.registry.url`` is."""
        return f"http://{HOST}:{self.port}/apis/registry/v2"

    def __enter__(self) -> Self:
        """Start it and return when it answers. Raises EmbeddedError."""
        folder = ensure_archive(REGISTRY)
        (runner,) = folder.glob("*-runner.jar")
        (self.port,) = free_ports(1)
        require_free(self.port, "the schema registry")
        self._data_dir.mkdir(parents=True, exist_ok=True)
        served = (f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={self.port}")
        managed = "-Djava.util.logging.manager=org.jboss.logmanager.LogManager"
        log = self._data_dir / "registry.log"
        self._jvm = Jvm(find_java(), [runner], [*_OPTIONS, *served, managed], log)
        try:
            # What its own main() does, but for waiting until the end.
            self._jvm.view.io.quarkus.runner.ApplicationImpl().start(self._jvm.strings())
        except Py4JError as error:
            text = f"the schema registry did not start: {reason(error)}; its log is {log}"
            self._jvm.close()
            raise EmbeddedError(text) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._jvm is not None:
            self._jvm.close()

    def converter(self) -> dict[str, str]:
        """A connector's options, for keys and values in Avro in Confluent's framing, schemas registered here."""
        options = {
            "": _CONVERTER,
            ".apicurio.registry.url": self.native_url,
            ".apicurio.registry.auto-register": "true",
            ".apicurio.registry.as-confluent": "true",
            ".apicurio.registry.headers.enabled": "false",
            ".apicurio.registry.use-id": "contentId",
        }
        return {f"{side}.converter{name}": value for side in ("key", "value") for name, value in options.items()}


def avro_plugin(folder: Path) -> Path:
    """Apicurio's converter as an entry of Connect's ``plugin.path``, laid out in ``folder``. Raises ArtifactError.

    It does not declare itself in the way that our worker looks for plugins: a jar that does it is put beside.
    """
    plugin = folder / "avro-converter"
    plugin.mkdir(parents=True)
    for jar in artifacts.ensure("avro-converter"):
        (plugin / jar.name).symlink_to(jar)
    with zipfile.ZipFile(plugin / "declaration.jar", "w") as declaration:
        declaration.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", f"{_CONVERTER}\n")
    return folder
