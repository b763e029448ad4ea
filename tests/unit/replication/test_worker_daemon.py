"""What a worker reads is acknowledged at once, and its zip importers are not kept."""

import io
import socket
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.replication.archives import forget_archives
from headgate.replication.worker_daemon import PromptReader, prompt

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def connected() -> Iterator[Pair]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        yield one, other


def delays(connection: socket.socket) -> bool:
    """Whether its kernel holds acknowledgements back at the moment."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the setting")
def test_what_a_worker_reads_is_acknowledged_at_once(connected: Pair) -> None:
    spark, worker = connected
    reader = io.BufferedReader(PromptReader(worker))
    for number in range(20):  # question and answer, until the kernel thinks that every question gets its answer
        spark.sendall(number.to_bytes(4))
        assert worker.recv(4) == number.to_bytes(4)
        worker.sendall(b"ok")
        assert spark.recv(2) == b"ok"
    assert delays(worker), "the kernel does not delay: this shows nothing"
    spark.sendall(b"task")
    assert reader.read(4) == b"task"
    assert not delays(worker)


def test_a_worker_reads_to_the_end_and_leaves_the_connection_open(connected: Pair) -> None:
    spark, worker = connected
    read = []

    def main(infile: io.BufferedReader, outfile: io.BufferedWriter) -> None:
        read.append(infile.read(4))
        outfile.write(b"done")
        outfile.flush()

    with worker.makefile("rb", buffering=0) as infile, worker.makefile("wb") as outfile:
        for text in (b"one.", b"two."):  # a reused worker begins anew with the same connection
            spark.sendall(text)
            prompt(main)(infile, outfile)  # type: ignore[arg-type]
            assert spark.recv(4) == b"done"
    assert read == [b"one.", b"two."]
    spark.shutdown(socket.SHUT_WR)
    assert io.BufferedReader(PromptReader(worker)).read() == b""


def test_importers_of_archives_are_forgotten_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as modules:
        modules.writestr("found_in_archive.py", "WORD = 'first'")
        modules.writestr("found_later.py", "WORD = 'second'")
    monkeypatch.syspath_prepend(str(archive))
    import found_in_archive  # type: ignore[import-not-found]

    assert str(archive) in sys.path_importer_cache
    forget_archives()
    assert str(archive) not in sys.path_importer_cache
    import found_later  # type: ignore[import-not-found]

    assert (found_in_archive.WORD, found_later.WORD) == ("first", "second")
