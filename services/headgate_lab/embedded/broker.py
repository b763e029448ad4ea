"""A real Kafka broker (KRaft: broker and controller in one), and on request a Connect worker, in one JVM.

For the demo and the tests: replication factor 1, loopback only. What it keeps is in one data folder, so it can be
killed and started again. A second broker may join the first one's cluster.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from py4j.protocol import Py4JError

from headgate.provisioning import artifacts
from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.java import find_java
from headgate.provisioning.jvm import Jvm, reason, tail
from headgate_lab.embedded.connect import ConnectWorker
from headgate_lab.embedded.ports import HOST, free_ports, require_free

# 256 MB works for broker and Connect together but costs twice the CPU during a snapshot.
DEFAULT_HEAP_MB = 512

FIRST_NODE = 1
"""The broker that is its cluster's controller."""

CALM: Final = {"broker.session.timeout.ms": "18000", "broker.heartbeat.interval.ms": "2000"}
"""Settings of a broker that is never killed. On busy cores a session of 1.5 s is lost for no reason, and then no topic
has a leader and none can be created."""

_SESSION_OF_LEASE: Final = 0.3
"""A broker that was killed is let back in well before the leases of Headgate's services end."""

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p [%t] %c{{1}}: %m%n
"""


def session_within(lease_seconds: float) -> dict[str, str]:
    """Settings of a broker that may be killed: leases that were made longer for a busy machine need longer sessions."""
    return {"broker.session.timeout.ms": str(max(1500, round(1000 * _SESSION_OF_LEASE * lease_seconds)))}


class EmbeddedKafka:
    """One broker. ``port`` None chooses free ones; ``settings`` are broker properties that override ours.

    ``further_listeners`` (name → port, advertised port) are for clients that come through a proxy each: a client there
    gets the advertised port, so that all of its connections use its proxy.

    ``joins`` makes this broker ``node`` of that one's cluster, which must run. The first broker stays its controller.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        further_listeners: Mapping[str, tuple[int, int]] | None = None,
        joins: "EmbeddedKafka | None" = None,
        node: int = FIRST_NODE,
        heap_mb: int = DEFAULT_HEAP_MB,
        progress: artifacts.Progress = lambda _name, _done, _all: None,
    ) -> None:
        if (joins is None) != (node == FIRST_NODE):
            raise EmbeddedError(f"node {node}: a broker that joins a cluster has another number than {FIRST_NODE}")
        self._joins = joins
        self._node = node
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "broker.log"
        self._asked_port = port
        self._ports: tuple[int, int] | None = None
        self._settings = dict(settings or {})
        self._further = dict(further_listeners or {})
        self._heap_mb = heap_mb
        self._progress = progress
        self._jvm: Jvm | None = None
        self._server: Any = None
        self._connect: ConnectWorker | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients; the same after a restart. Raises EmbeddedError before the first start."""
        if self._ports is None:
            raise EmbeddedError("the broker has no address before it was started")
        return f"{HOST}:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """Process id of the JVM. Raises EmbeddedError when it is not running."""
        return self._running().pid

    def alive(self) -> bool:
        """Whether the process of broker and Connect runs."""
        return self._jvm is not None and self._jvm.alive()

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``, and return when clients can connect.

        Raises NoJavaError, ArtifactError, PortTakenError, or EmbeddedError with the end of the log.
        """
        if self._jvm is not None:
            raise EmbeddedError(f"the broker at {self.bootstrap} is running already")
        java, jars = find_java(), artifacts.ensure("kafka", self._progress)
        if self._ports is None:
            first, second = free_ports(2)
            self._ports = (self._asked_port or first, second)
        require_free(self._ports[0], "the Kafka broker (clients)")
        require_free(self._ports[1], "the Kafka broker (controller)")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        log4j = self.data_dir / "log4j2.properties"
        log4j.write_text(_LOG4J.format(level="WARN", log_file=self.log_file), encoding="utf-8")
        # SerialGC: the parallel collectors' threads and buffers buy nothing on two cores and half a gigabyte.
        options = [f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={log4j}"]
        # Native compressors unpack themselves there; what a killed JVM leaves goes with the data folder.
        scratch = self.data_dir / "tmp"
        scratch.mkdir(exist_ok=True)
        options.append(f"-Djava.io.tmpdir={scratch}")
        # The folder was found to hold exactly the pinned jars; named whole it keeps process lists readable.
        self._jvm = Jvm(java, [jars[0].parent / "*"], options, self.data_dir / "jvm.log")
        try:
            self._start_server(self._jvm)
        except Py4JError as error:
            why = reason(error)
            self.kill()
            raise EmbeddedError(
                f"the Kafka broker did not start: {why}\n{tail(self.log_file)}\nIts logs are in {self.data_dir}"
            ) from None
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop in order: connectors, worker, broker. Idempotent."""
        jvm, self._jvm = self._jvm, None
        connect, self._connect = self._connect, None
        server, self._server = self._server, None
        if jvm is None:
            return
        try:
            if jvm.alive():
                if connect is not None:
                    connect.stop()
                server.shutdown()
                server.awaitShutdown()
        except Py4JError as error:
            why = reason(error)
            raise EmbeddedError(f"the Kafka broker did not stop in order: {why}; its log is {self.log_file}") from None
        finally:
            jvm.close()

    def kill(self) -> None:
        """SIGKILL the JVM, as a crash would. ``start`` brings it up again on the same data. Idempotent."""
        jvm, self._jvm = self._jvm, None
        self._server = self._connect = None
        if jvm is not None:
            jvm.kill()

    def start_connect(self, *plugins: artifacts.ArtifactSet | Path, port: int | None = None) -> ConnectWorker:
        """Start a Connect worker in the broker's JVM. Raises as ``start`` does.

        ``plugins``: sets of jars, or entries of Connect's ``plugin.path``.
        """
        jvm = self._running()
        paths = [
            plugin if isinstance(plugin, Path) else artifacts.plugin_path(plugin, self._progress) for plugin in plugins
        ]
        self._connect = ConnectWorker(jvm, self.bootstrap, self.data_dir, paths, port)
        return self._connect

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Jvm:
        if self._jvm is None or not self.alive():
            raise EmbeddedError(f"the Kafka broker is not running; its logs are in {self.data_dir}")
        return self._jvm

    def _start_server(self, jvm: Jvm) -> None:
        properties = self._properties()
        config_file = self.data_dir / "broker.properties"
        config_file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        java = jvm.view
        if not Path(properties["log.dirs"], "meta.properties").exists():
            arguments = jvm.strings("format", "-t", self._cluster_id(java), "-c", str(config_file))
            if java.kafka.tools.StorageTool.execute(arguments, java.java.lang.System.out) != 0:
                raise EmbeddedError(f"the Kafka broker's storage could not be formatted: {tail(jvm.log_file)}")
        config = java.kafka.server.KafkaConfig.fromProps(jvm.properties(properties))
        self._server = java.kafka.server.KafkaRaftServer(config, java.org.apache.kafka.common.utils.Time.SYSTEM)
        self._server.startup()

    def _controller_port(self) -> int:
        ports = (self._joins or self)._ports
        if ports is None:
            raise EmbeddedError("the first broker of a cluster must be started before another joins it")
        return ports[1]

    def _cluster_id(self, java: Any) -> str:
        if self._joins is not None:
            stored = Path(self._joins._properties()["log.dirs"], "meta.properties").read_text(encoding="utf-8")
            return next(line.partition("=")[2] for line in stored.splitlines() if line.startswith("cluster.id="))
        # Kafka's own generator: another id might begin with "-", which its argument parser takes for an option.
        return str(java.org.apache.kafka.common.Uuid.randomUuid().toString())

    def _properties(self) -> dict[str, str]:
        if self._ports is None:
            raise EmbeddedError("ports are chosen before the configuration is written")
        clients, controller = self._ports
        ports = {"PLAINTEXT": (clients, clients), **self._further}
        listeners = {name: port for name, (port, _) in ports.items()}
        if self._joins is None:
            listeners["CONTROLLER"] = controller
        one_replica = {
            f"{internal}.{what}": "1"
            for internal in ("transaction.state.log", "share.coordinator.state.topic")
            for what in ("replication.factor", "min.isr", "num.partitions")
        }
        return {
            "process.roles": "broker,controller" if self._joins is None else "broker",
            "node.id": str(self._node),
            "controller.quorum.voters": f"{FIRST_NODE}@{HOST}:{self._controller_port()}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{HOST}:{told}" for name, (_, told) in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*ports, "CONTROLLER")),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data_dir / "kafka"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            **one_replica,
            "num.network.threads": "2",
            "num.io.threads": "2",
            "log.cleaner.threads": "1",
            "log.cleaner.dedupe.buffer.size": "2097152",
            # Compaction within a second of the segment's roll, for tests that wait for it.
            "log.cleaner.backoff.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker is let back in after 1.5 s rather than 9.
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "500",
            **self._settings,
        }
