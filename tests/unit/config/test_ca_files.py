"""A file that a feed names as a CA's is read only if a library could use it."""

import os
from pathlib import Path

import pytest

from fixtures.registry_server import OF_SOURCE
from headgate.config.ca_files import CA_FILE_BYTES_MAX, why_not_ca
from headgate.config.registry_spec import RegistrySpec
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import SchemaRegistry


def test_a_file_with_a_certificate_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("subject\n-----BEGIN CERTIFICATE-----\n")
    assert why_not_ca(file) is None


def test_what_is_no_such_file_is_not_read(tmp_path: Path) -> None:
    pipe, large, empty = tmp_path / "pipe", tmp_path / "large", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.touch()
    with large.open("wb") as opened:
        opened.write(b"-----BEGIN CERTIFICATE-----")
        opened.truncate(CA_FILE_BYTES_MAX + 1)
    for file in (pipe, large, empty, tmp_path, Path("/dev/zero")):
        assert why_not_ca(file) == f"{file} is not a file with a certificate in PEM form"
    assert why_not_ca(tmp_path / "missing") == f"cannot read {tmp_path}/missing (No such file or directory)"


def test_a_registry_names_its_authoritys_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    registry = SchemaRegistry(RegistrySpec(url="https://127.0.0.1:1", ca_file=pipe), OF_SOURCE)
    with pytest.raises(SchemasUnavailableError, match=r"source\.registry\.ca_file: .*pipe is not a file with a cert"):
        registry.schema(1)
