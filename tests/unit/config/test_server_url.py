"""URLs of servers have one spelling, and errors never repeat a secret."""

import pytest

from headgate.config.server_url import ServerUrlError, server_url


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("https://registry.example", "https://registry.example"),
        ("https://registry.example:443/", "https://registry.example/"),
        ("HTTP://Registry.example:80/v1", "http://registry.example/v1"),
        ("http://registry.example:8081", "http://registry.example:8081"),
        ("https://[::1]:9000", "https://[::1]:9000"),
    ],
)
def test_a_url_has_one_spelling(given: str, text: str) -> None:
    assert server_url(given).text == text
    assert server_url(text).text == text


@pytest.mark.parametrize(
    "given",
    ["", "registry", "registry:8081", "ftp://registry", "https://", "https://:8081", "https://a:port", "https://a:0",
     "https://a:70000", "https://a?token=secret", "https://a#secret", "https://[::1"],
)  # fmt: skip
def test_what_is_not_the_url_of_a_server_is_refused(given: str) -> None:
    with pytest.raises(ServerUrlError, match="not the URL of a server") as found:
        server_url(given)
    assert not found.value.has_credentials


@pytest.mark.parametrize("given", ["https://u:secret@a", "https://secret@a", "https://u:secret@a:port", "https://@a"])
def test_credentials_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(ServerUrlError) as found:
        server_url(given)
    assert found.value.has_credentials
    assert "secret" not in str(found.value)
