"""Where a feed may have Iceberg tables written."""

from pathlib import Path

import pytest
import yaml

from headgate.config.secrets import ALLOWED_FOLDERS, ALLOWED_HOSTS, CONNECTIONS, SECRETS_DIR
from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import SINK
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.iceberg.address import ClientCredentials, address_of, place_of, with_tls
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.registry import open_sink, same_sink


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("", "Write it as postgresql://user@host:port/database.warehouse=/folder, or as sqlite:////folder/catalog.db"),
        ("http://catalog:8181", "a SQLite file, or a REST catalog"),
        ("rest+https://catalog", "does not name the folder of the tables"),
        ("rest+https://ann:hunter2@catalog?warehouse=/lake", "without a user in it"),
        ("rest+https:///path?warehouse=/lake", "is not valid"),
        ("rest+https://catalog:x?warehouse=/lake", "is not valid"),
        ("rest+https://catalog/../x?warehouse=/lake", "is not valid"),
        ("rest+https://catalog/a%2fb?warehouse=/lake", "the path has other characters"),
        ("rest+https://catalog?warehouse=lake", "warehouse is not an absolute path"),
        ("rest+https://catalog?warehouse=/lake&ca_file=ca.pem", "ca_file is not an absolute path"),
        ("rest+https://catalog?warehouse=/lake&tocken=hunter2", "not known. Choose from catalog, warehouse, ca_file, "),
        ("rest+https://catalog?warehouse=/lake&token=hunter2", "token is refused: it is a secret"),
        ("rest+https://catalog?warehouse=/lake&client_secret=hunter2", "client_secret is refused: it is a secret"),
        ("rest+https://catalog?warehouse=/lake&credential=a:hunter2", "credential is refused: it is a secret"),
        ("rest+https://catalog?warehouse=/lake&scope=hunter2", "has scope and no client_id. Name the client"),
        ("rest+https://catalog?warehouse=/lake&client_id=a%20hunter2", "client_id must be printable ASCII"),
        ("rest+https://catalog?warehouse=/lake&client_id=a&scope=%22%0ahunter2", "scope must be printable ASCII"),
        ("rest+https://catalog?warehouse=/lake&client_id=a&scope=hunter2++b", "words of them, with one space between"),
        ("rest+https://catalog?warehouse=/lake&client_id=a&resource=urn:x/#hunter2", "and %23 for # in a value"),
        ("rest+https://catalog?warehouse=/lake&client_id=a&client_id=hunter2", "has client_id more than once"),
        ("sqlite:////lake/catalog.db?warehouse=/a&warehouse=/hunter2", "has warehouse more than once"),
        ("postgresql://user:hunter2@db/lake?warehouse=/a&warehouse=/b", "has warehouse more than once"),
        *(
            (f"rest+https://catalog?warehouse=/lake&client_id=a&oauth2_server_uri={uri}", "is not the URL of a token s")
            for uri in (
                "hunter2",
                "ftp://hunter2",
                "https://u:hunter2@h/t",
                "https://h:x/hunter2",
                "https://h/t%3fhunter2",
            )
        ),
        ("postgresql://user:hunter2@db/lake", "does not name the folder of the tables"),
        ("postgresql://user:hunter2@db/lake?warehouse=lake", "warehouse is not an absolute path"),
        ("postgresql://user:hunter2@db/lake?warehose=/lake", "did you mean 'warehouse'"),
        ("postgresql://user:hunter2@db/lake?warehouse=/lake&catalog=a/b", "catalog must be a name"),
        ("postgresql://user:hunter2@db/lake?warehouse=/lake&sslmod=x", "Did you mean 'sslmode'"),
        ("postgresql://user:hunter2@db/lake?warehouse=/lake&passfile=/x", "passfile is refused: it is a secret"),
        ("postgresql://db?warehouse=/lake", "Write postgresql://user@host:port/database"),
        ("sqlite:///lake/catalog.db", "with four slashes"),
        ("sqlite://lake/catalog.db", "with four slashes"),
        ("sqlite:////lake/../catalog.db", "not an absolute path"),
        ("sqlite:////lake/catalog.db?warehouse=lake", "warehouse is not an absolute path"),
        ("sqlite:////lake/catalog.db?catalog=a/b", "catalog must be a name"),
        ("sqlite:////lake/catalog.db?catalogue=x", "did you mean 'catalog'"),
        ("sqlite:////lake/catalog.db?warehouse=s3a://lake", "Write such a place as s3://bucket/prefix"),
        ("postgresql://user:hunter2@db/lake?warehouse=s3://lake/a b", "warehouse is not a place in an object store"),
    ],
)
def test_an_address_that_is_not_valid_is_refused_and_not_quoted(dsn: str, why: str) -> None:
    with pytest.raises(DatabaseRefusedError, match=why) as refused:
        address_of(dsn)
    assert "hunter2" not in str(refused.value)


def test_one_catalog_has_one_spelling() -> None:
    short, long = "sqlite:////lake/catalog.db", "sqlite:////lake/catalog.db?warehouse=/lake/&catalog=default"
    assert address_of(short).text == address_of(long).text
    assert place_of(address_of(short).text) == place_of(short)
    short = "postgres://ann@DB/lake?sslmode=require&warehouse=/lake"
    long = "postgresql://ann:secret@db:5432/lake?warehouse=/lake/&catalog=default&sslmode=require"
    assert address_of(short).text == address_of(long).text
    assert address_of(address_of(short).text).text == address_of(short).text
    assert (address_of(long).has_password, address_of(short).has_password) == (True, False)


def test_one_rest_catalog_has_one_spelling() -> None:
    short, long = "rest+https://CAT/api/?warehouse=/lake/", "rest+https://cat:443/api?catalog=default&warehouse=/lake"
    assert address_of(short).text == long.replace("catalog=default&", ""), "the server has a default of its own"
    assert address_of(address_of(long).text).text == address_of(long).text == long
    found = address_of("rest+https://cat:8181?warehouse=s3://lake/shop&catalog=shop&ca_file=/etc/ca.pem")
    assert (found.hosts, found.server, found.buckets) == (("cat",), "cat:8181", ("s3://lake/shop",))
    assert address_of(found.text) == found
    place = place_of("rest+https://[::1]:8181?warehouse=/lake")
    assert (place.rest, place.folders) == ("https://[::1]:8181", (Path("/lake"),))


def test_a_client_and_its_token_server_are_part_of_the_address() -> None:
    catalog = "rest+https://cat/api?warehouse=/lake"
    assert place_of(catalog).client is None
    own = place_of(f"{catalog}&client_id=headgate").client
    assert own == ClientCredentials("https://cat:443/api/v1/oauth/tokens".replace(":443", ""), "headgate")
    asked = "scope=PRINCIPAL_ROLE%3AALL+catalog&audience=a%26b&resource=urn%3Ax"
    address = f"{catalog}&client_id=he%26ad&oauth2_server_uri=HTTPS://Issuer.example:443/realms/x%2520y&{asked}"
    found = place_of(address)
    assert found.client == ClientCredentials(
        "https://issuer.example/realms/x%20y", "he&ad", "PRINCIPAL_ROLE:ALL catalog", "a&b", "urn:x"
    )
    assert place_of(found.text) == found
    assert address_of(address).hosts == ("cat", "issuer.example")
    assert address_of(address).server == "cat:443"


def test_tls_of_a_rest_catalog_is_a_ca() -> None:
    rest = "rest+https://cat?warehouse=/lake"
    assert place_of(with_tls(rest, {"ca_file": "/etc/ca.pem"}, SINK)).ca_file == "/etc/ca.pem"
    for address, files, why in (
        (rest, {"ca_file": "/etc/ca.pem", "key_file": "k"}, "takes ca_file only"),
        (f"{rest}&ca_file=/etc/other.pem", {"ca_file": "/etc/ca.pem"}, "beside tls"),
    ):
        with pytest.raises(DatabaseRefusedError, match=why):
            with_tls(address, files, SINK)


def test_a_warehouse_in_an_object_store_is_no_folder() -> None:
    dsn = "postgresql://ann@db/lake?warehouse=s3://lake/tables/"
    found = address_of(dsn)
    assert (found.folders, found.buckets) == ((), ("s3://lake/tables",))
    assert address_of(found.text) == found
    assert place_of(dsn).url == "s3://lake/tables"
    in_file = address_of("sqlite:////lake/catalog.db?warehouse=s3://lake/tables")
    assert (in_file.folders, in_file.buckets) == ((Path("/lake"),), ("s3://lake/tables",))


def test_a_connection_has_the_store_of_its_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_FOLDERS, "s3://lake")
    monkeypatch.setenv(CONNECTIONS, str(tmp_path / "connections.yaml"))
    address = "postgresql://ann@db/lake?warehouse=s3://lake/tables"

    def described(kind: str, address: str, store: dict[str, str]) -> SinkSpec:
        given = {"kind": kind, "address": address, "use": ["sink"], "store": store}
        (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"connections": {"lake": given}}))
        return SinkSpec(type=kind, connection="lake")

    open_sink(described("iceberg", address, {"region": "eu-central-1"}))
    with pytest.raises(SinkRefusedError, match="store of connection lake neither a region of AWS nor the server"):
        open_sink(described("iceberg", address, {}))
    with pytest.raises(SinkRefusedError, match="store is for Iceberg catalogs"):
        open_sink(described("postgresql", "postgresql://ann@db/lake", {"region": "eu-central-1"}))


def test_only_folders_of_the_operators_list_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, other = tmp_path / "lake", tmp_path / "other"
    monkeypatch.setenv(ALLOWED_FOLDERS, str(allowed))
    open_sink(SinkSpec(type="iceberg", dsn=f"sqlite:///{allowed}/c.db"))
    for dsn in (f"sqlite:///{other}/c.db", f"sqlite:///{allowed}/c.db?warehouse={other}"):
        with pytest.raises(SinkRefusedError, match=rf"is not below a folder in {ALLOWED_FOLDERS}"):
            open_sink(SinkSpec(type="iceberg", dsn=dsn))


def test_a_catalog_in_a_database_is_on_a_host_and_in_a_folder_of_the_operators_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED_FOLDERS, str(tmp_path))
    monkeypatch.setenv(ALLOWED_HOSTS, "db")
    monkeypatch.setenv(SECRETS_DIR, str(tmp_path))
    (tmp_path / "key.pem").touch()
    dsn = f"postgresql://ann@db/lake?warehouse={tmp_path}"
    open_sink(SinkSpec(type="iceberg", dsn=dsn))
    for other, why in (
        (dsn.replace("@db", "@elsewhere"), "elsewhere"),
        (f"postgresql://ann@db/lake?warehouse={tmp_path}/../other", "without . and .. as names"),
        ("postgresql://ann@db/lake?warehouse=/other", rf"is not below a folder in {ALLOWED_FOLDERS}"),
        (f"{dsn}&sslkey=/etc/key.pem", "private key"),
    ):
        with pytest.raises(SinkRefusedError, match=why):
            open_sink(SinkSpec(type="iceberg", dsn=other))
    with pytest.raises(SinkRefusedError, match="must not contain a password"):
        same_sink(SinkSpec(type="iceberg", dsn=dsn.replace("ann", "ann:secret")))
    with pytest.raises(SinkRefusedError, match="a SQLite file has no password"):
        open_sink(SinkSpec(type="iceberg", dsn=f"sqlite:///{tmp_path}/c.db", password_file=Path("key.pem")))


def test_tls_of_a_connection_is_part_of_the_address() -> None:
    files = {"ca_file": "/etc/ca.pem"}
    found = with_tls("postgresql://ann@db/lake?warehouse=/lake", files, SINK)
    assert place_of(found).warehouse == "/lake"
    assert "sslmode=verify-full" in found
    assert "sslrootcert=/etc/ca.pem" in found
    with pytest.raises(DatabaseRefusedError, match="tls is for servers"):
        with_tls("sqlite:////lake/c.db", files, SINK)
