"""An Iceberg sink whose catalog is reached by the REST protocol, for tests."""

from contextlib import ExitStack
from pathlib import Path
from ssl import SSLContext

from fixtures.iceberg_rest import RestServer, running_rest_catalog
from headgate.sinks.lake.sink import LakeSink
from integration.sinks.iceberg_bench import IcebergBench, new_catalog

TOKEN = "a-token"


class RestBench(IcebergBench):
    """Its servers end with ``ends``. Tables are seen as the catalog's own database has them."""

    def __init__(self, folder: Path, ends: ExitStack, *, appends: bool) -> None:
        self.ends = ends
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        super().__init__(folder, appends=appends)

    def place(self) -> dict[str, object]:
        self.server = self.serving("default")
        return self.at(self.server)

    def serving(self, name: str, tls: SSLContext | None = None) -> RestServer:
        catalog = new_catalog(
            f"sqlite:///{self.token_file.parent}/lake/catalog.db", self.token_file.parent / "lake", name
        )
        return self.ends.enter_context(running_rest_catalog(catalog, TOKEN, tls))

    def at(self, server: RestServer) -> dict[str, object]:
        """A feed's address of it."""
        warehouse = self.token_file.parent / "lake"
        return {"dsn": f"rest+{server.url}?warehouse={warehouse}", "password_file": str(self.token_file)}

    def elsewhere(self) -> tuple[LakeSink, str]:
        other = self.serving("other")
        self.register(other.catalog)
        return self.opened(**self.at(other)), "copies.orders"
