"""What is wrong around containers: an error that says what and where, or no effect at all."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest

from containers.conftest import ANSWER_SECONDS, ROOT, Compose, build_images, docker, eventually, left_of, logs_of
from containers.ports import PORTS
from fixtures.servers import ENGINE_ADDRESS, KAFKA_IMAGE, _no_engine
from headgate import __version__
from headgate.app.exit_codes import ExitCode
from headgate.provisioning.time_scale import scaled_seconds

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(1800))]

IMAGE = f"headgate:{__version__}"
SCRIPT = ROOT / "infra/docker/local-images"
NOBODY = 65534
SETTINGS = {"HEADGATE_BOOTSTRAP": "kafka:9092", "HEADGATE_SHARDS": "1", "HEADGATE_REPLICATION_FACTOR": "1"}
BROKER = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}

MAKE_TOPICS = f"""\
from confluent_kafka.admin import AdminClient, NewTopic
topics = [NewTopic("shop.public." + name, 1, 1) for name in ("customers", "orders")]
admin = AdminClient({{"bootstrap.servers": "kafka:9092"}})
for future in admin.create_topics(topics).values():
    future.result({ANSWER_SECONDS})
"""


def given(environment: dict[str, str]) -> list[str]:
    return [argument for name, value in environment.items() for argument in ("-e", f"{name}={value}")]


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """With a broker that answers to `kafka`, and the control topics."""
    build_images()
    name = f"headgate-bad-{os.getpid()}"
    docker("network", "create", name)
    broker = ""
    try:
        at = ("--network", name, "--network-alias", "kafka")
        broker = docker("run", "--detach", *at, *given(BROKER), KAFKA_IMAGE)
        eventually(lambda: "Kafka Server started" in logs_of(broker), "the broker answers")
        docker("run", "--rm", "--network", name, *given(SETTINGS), IMAGE, "topic", "create")
        yield name
    finally:
        if broker:
            docker("rm", "--force", "--volumes", broker, check=False)
        docker("network", "rm", name, check=False)


@contextmanager
def volume() -> Iterator[str]:
    """One that belongs to root, as every new one does."""
    name = docker("volume", "create")
    try:
        yield name
    finally:
        docker("volume", "rm", name)


def ended(network: str, *command: str, options: tuple[str, ...] = (), **environment: str) -> tuple[int, str]:
    """A container of Headgate that ends by itself: its exit code, and what it has said."""
    place = ("--network", network, *options)
    container = docker("run", "--detach", *place, *given(SETTINGS | environment), IMAGE, *command)
    try:
        return int(docker("wait", container)), logs_of(container)
    finally:
        docker("rm", "--force", "--volumes", container)


def of_nobody(answer: object) -> None:
    os.setuid(NOBODY)
    answer.put(_no_engine())  # type: ignore[attr-defined]


def test_no_engine() -> None:
    address = "unix:///nowhere/docker.sock"
    environment = os.environ | {"DOCKER_HOST": address}
    refused = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"no engine answers at {address}; start one (dockerd)" in refused.stderr


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    for tool in ("bash", "id", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    command = [ROOT / "infra/docker/prerequisites"]
    refused = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    for advice in ("apt-get install docker.io", "apt-get install docker-compose", "apt-get install debootstrap"):
        assert advice in refused.stderr


def test_an_engine_that_does_not_let_us_in() -> None:
    if os.getuid() != 0 or os.environ.get("DOCKER_HOST", ENGINE_ADDRESS) != ENGINE_ADDRESS:
        pytest.skip("needs root, who may become nobody, and the engine's usual socket")
    fork = get_context("fork")
    answers = fork.Queue()
    process = fork.Process(target=of_nobody, args=(answers,))
    process.start()
    assert answers.get(timeout=ANSWER_SECONDS) == "Permission denied"
    process.join()


def test_a_port_that_is_taken() -> None:
    compose = Compose(f"headgate-port-{os.getpid()}")
    with closing(socket.create_server(("127.0.0.1", PORTS["KAFKA_PORT"]))):
        try:
            compose("up", "--detach", "kafka", check=False)
            assert docker("ps", "-q", "--filter", f"label=com.docker.compose.project={compose.project}") == ""
        finally:
            compose("down", "--volumes", "--remove-orphans")
    assert left_of(compose.project) == []


@pytest.mark.parametrize("service", ["agent", "migration", "views"])
def test_no_folder_that_may_be_written_to(network: str, service: str) -> None:
    code, said = ended(network, "serve", service, options=("--read-only",))
    assert code == ExitCode.SETTING, said
    assert "user 10001 cannot write to the system's folder for temporary files" in said
    assert "Traceback" not in said


def test_a_volume_that_its_user_cannot_write_to(network: str) -> None:
    with volume() as name:
        options = ("-v", f"{name}:/scratch")
        code, said = ended(network, "serve", "agent", options=options, HEADGATE_SPARK__SCRATCH="/scratch")
    assert code == ExitCode.SETTING, said
    assert "HEADGATE_SPARK__SCRATCH: user 10001 cannot write to /scratch: Permission denied" in said
    assert "Traceback" not in said


def test_a_broker_whose_volume_is_not_its_own() -> None:
    with volume() as name:
        options = ("-v", f"{name}:/kafka", *given(BROKER | {"KAFKA_LOG_DIRS": "/kafka"}))
        container = docker("run", "--detach", *options, KAFKA_IMAGE)
        try:
            assert docker("wait", container) != "0"
            assert "/kafka" in logs_of(container)
        finally:
            docker("rm", "--force", "--volumes", container)


def test_a_secret_that_is_missing(network: str) -> None:
    file = "/run/secrets/kafka_password"
    code, said = ended(network, "serve", "coordinator", HEADGATE_KAFKA__SASL_PASSWORD_FILE=file)
    assert code == ExitCode.SETTING
    assert f"HEADGATE_KAFKA__SASL_PASSWORD_FILE: cannot read {file}: No such file or directory" in said


def test_a_feeds_secret_that_is_missing(network: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    feed = tmp_path / "feed.yaml"
    feed.write_text((ROOT / "infra/docker/feeds/shop.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    docker("run", "--rm", "--network", network, "--entrypoint", "python", IMAGE, "-c", MAKE_TOPICS)
    options = ("-v", f"{tmp_path}:/feeds:ro")
    code, said = ended(network, "feed", "create", "/feeds/feed.yaml", "--dry-run", options=options)
    assert code == ExitCode.SINK_REFUSED, said
    assert "/run/secrets/target_password" in said


def test_something_that_is_no_broker(network: str) -> None:
    at = ("--network", network, "--network-alias", "web")
    web = docker("run", "--detach", *at, "--entrypoint", "python", IMAGE, "-m", "http.server", "9092")
    try:
        code, said = ended(network, "serve", "coordinator", HEADGATE_BOOTSTRAP="web:9092")
    finally:
        docker("rm", "--force", web)
    assert code == ExitCode.BROKER_UNREACHABLE
    assert "no answer from Kafka at web:9092" in said
    assert "Traceback" not in said
