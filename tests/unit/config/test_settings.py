"""Settings: where a value comes from, and what is refused."""

import os
import re
from pathlib import Path
from typing import Final

import pytest

from headgate.config.settings import OPTIONS, SettingsError, known_variables, load_settings, redacted
from support.commands import commands


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)


def test_defaults_keep_to_loopback_and_to_three_copies() -> None:
    settings = load_settings()
    assert settings.http.bind == "127.0.0.1"
    assert settings.replication_factor == 3
    assert settings.prefix == "headgate."


def test_environment_is_nested_and_flags_override_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_HTTP__PORT", "9001")
    monkeypatch.setenv("HEADGATE_HTTP__BIND", "192.0.2.1")
    monkeypatch.setenv("HEADGATE_SHARDS", "4")
    settings = load_settings({"http": {"port": 9002, "bind": None}, "shards": None})
    assert (settings.http.port, settings.http.bind, settings.shards) == (9002, "192.0.2.1", 4)


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("HEADGATE_BOOTSTRAPS", "HEADGATE_BOOTSTRAP"),
        ("HEADGATE_HTTP__PRT", "HEADGATE_HTTP__PORT"),
        ("HEADGATE_HTTP_PORT", "HEADGATE_HTTP__PORT"),
        ("HEADGATE_LEASE", "HEADGATE_LEASE_SECONDS"),
    ],
)
def test_unknown_variable_is_refused_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, variable: str, nearest: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SettingsError, match=f"{variable}: this setting does not exist; did you mean '{nearest}'"):
        load_settings()


def test_unknown_variable_far_from_all_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_XYZZY", "1")
    with pytest.raises(SettingsError, match="choose from HEADGATE_BOOTSTRAP"):
        load_settings()


DEFAULTS_OF_TEXT = [
    variable for variable, option in known_variables().items() if option.kind is str and option.default != ""
]


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize("variable", DEFAULTS_OF_TEXT)
def test_an_empty_text_is_refused_unless_it_is_the_default(
    monkeypatch: pytest.MonkeyPatch, variable: str, empty: str
) -> None:
    monkeypatch.setenv(variable, empty)
    with pytest.raises(SettingsError, match=f"^{variable}: "):
        load_settings()


def test_no_brokers_are_refused_before_any_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "HEADGATE_BOOTSTRAP" in DEFAULTS_OF_TEXT
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", "")
    with pytest.raises(SettingsError, match=r"the value is empty\. Set one, .* use the default, localhost:9092"):
        load_settings()


def test_a_text_whose_default_is_empty_may_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_ALLOWED_HOSTS", "")
    assert load_settings().allowed_hosts == ""


def test_variables_of_tests_and_cache_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_TEST_BOOTSTRAP", "x:1")
    monkeypatch.setenv("HEADGATE_CACHE", "/nowhere")
    assert load_settings().bootstrap == "localhost:9092"


def test_librdkafka_properties_by_their_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("HEADGATE_KAFKA__SOCKET_TIMEOUT_MS", "30000")
    settings = load_settings({"kafka": {"security.protocol": "SSL"}})
    assert settings.kafka == {"security.protocol": "SSL", "socket.timeout.ms": "30000"}


@pytest.mark.parametrize("name", ["isolation.level", "transactional.id", "acks", "enable.idempotence"])
def test_properties_that_a_guarantee_rests_on_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} cannot be chosen"):
        load_settings({"kafka": {name: "1"}})


def test_secret_comes_from_a_file_and_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n", encoding="utf-8")
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_PASSWORD_FILE", str(secret))
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_USERNAME", "ann")
    settings = load_settings()
    assert settings.kafka["sasl.password"] == "s3cret"
    assert redacted(settings)["kafka"] == {"sasl.password": "(hidden)", "sasl.username": "ann"}


def test_of_spark_properties_only_names_are_shown() -> None:
    settings = load_settings({"spark": {"properties": "spark.authenticate.secret=s3cret\n\nspark.cores.max 4"}})
    assert redacted(settings)["spark"]["properties"] == ["spark.authenticate.secret", "spark.cores.max"]


def test_value_and_file_together_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("h:1", encoding="utf-8")
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", "h:2")
    monkeypatch.setenv("HEADGATE_BOOTSTRAP_FILE", str(tmp_path / "b"))
    with pytest.raises(SettingsError, match="HEADGATE_BOOTSTRAP_FILE is given both"):
        load_settings()


def test_missing_secret_file_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_PASSWORD_FILE", str(tmp_path / "gone"))
    with pytest.raises(SettingsError, match=r"SASL_PASSWORD_FILE: cannot read .*gone: No such file"):
        load_settings()


def test_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_HTTP__PORT", "eighty")
    with pytest.raises(SettingsError, match="HEADGATE_HTTP__PORT: 'eighty' is not allowed: write a whole number"):
        load_settings()


def test_every_variable_has_a_description() -> None:
    assert [name for name, field in known_variables().items() if not field.description] == []


BAD_FLAGS: Final[dict[tuple[str, ...], object]] = {
    ("bootstrap",): "",
    ("cluster",): "no blanks",
    ("shards",): 0,
    ("replication_factor",): 0,
    ("lease_seconds",): 0.0,
    ("http", "port"): 99999,
    ("http", "bind"): "",
    ("log", "format"): "xml",
    ("log", "level"): "all",
    ("agent", "name"): "no blanks",
}


@pytest.mark.parametrize("place", BAD_FLAGS)
def test_a_bad_value_names_what_the_user_typed(place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def flags(value: object) -> dict[str, object]:
        return {place[0]: value} if len(place) == 1 else {place[0]: {place[1]: value}}

    variable = "HEADGATE_" + "__".join(place).upper()
    with pytest.raises(SettingsError, match=f"^{OPTIONS[place]}: "):
        load_settings(flags(BAD_FLAGS[place]))
    monkeypatch.setenv(variable, str(BAD_FLAGS[place]))
    with pytest.raises(SettingsError, match=f"^{variable}: "):
        load_settings(flags(None))
    with pytest.raises(SettingsError, match=f"^{OPTIONS[place]}: "):
        load_settings(flags(BAD_FLAGS[place]))


def test_a_bad_value_in_a_file_names_the_variable_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "port").write_text("99999")
    monkeypatch.setenv("HEADGATE_HTTP__PORT_FILE", str(tmp_path / "port"))
    with pytest.raises(SettingsError, match=r"^HEADGATE_HTTP__PORT_FILE: '?99999'? is not allowed"):
        load_settings()


def test_a_property_that_cannot_be_chosen_names_what_the_user_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"^--kafka-property: acks cannot be chosen"):
        load_settings({"kafka": {"acks": "1"}})
    monkeypatch.setenv("HEADGATE_KAFKA__ACKS", "1")
    with pytest.raises(SettingsError, match=r"^HEADGATE_KAFKA__ACKS: acks cannot be chosen"):
        load_settings({"kafka": {"client.rack": "a"}})


def test_each_option_with_a_variable_is_known_by_its_name() -> None:
    named = {
        (name, option.opts[0])
        for command in dict(commands()).values()
        for option in command.params
        for name in re.findall(r"\[(HEADGATE_\w+)", option.help or "")
    }
    known = {("HEADGATE_" + "__".join(place).upper(), option) for place, option in OPTIONS.items()}
    known = {("HEADGATE_KAFKA__" if name == "HEADGATE_KAFKA" else name, option) for name, option in known}
    assert known == named
