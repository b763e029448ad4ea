"""What texts of libraries about an object store mean. They are as the libraries write them."""

import pytest

from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.lake.store_errors import Told, code_in, store_error

TOLD = Told("https://s3.example", "s3://lake/tables", "lake", "sink.store", "sink.dsn", has_files=True)

RUST = (
    "Kernel error -> Generic S3 error\n    \x1b[31m↳\x1b[0m Error performing GET http://x/lake in 1.8ms - Server "
    "returned non-2xx status code\n     \x1b[31m↳\x1b[0m {status}\n      \x1b[31m↳\x1b[0m {body}\n"
)


def rust(status: str, code: str | None) -> str:
    return RUST.format(status=status, body="" if code is None else f"<Error><Code>{code}</Code><Key>AK</Key></Error>")


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        (rust("404 Not Found", "NoSuchBucket"), SinkRefusedError, "bucket lake does not exist there. Create it"),
        (rust("403 Forbidden", "AccessDenied"), SinkRefusedError, r"s3:PutObject and .* on s3://lake/tables/\*"),
        (rust("403 Forbidden", None), SinkRefusedError, r"\(AccessDenied\)"),
        (rust("301 Moved", "PermanentRedirect"), SinkRefusedError, r"another region.*sink\.store\.region"),
        (rust("503 Service Unavailable", "SlowDown"), SinkUnavailableError, r"\(SlowDown\)\. It is retried"),
        (rust("500 Internal Server Error", None), SinkUnavailableError, r"\(status 500\)\. It is retried"),
        (
            "When reading key 'k' in bucket 'lake': AWS Error ACCESS_DENIED during HeadObject operation: No body.",
            SinkRefusedError,
            "AccessDenied",
        ),
        (
            "AWS Error UNKNOWN (HTTP status 400) during PutObject: Unable to parse ExceptionName: ExpiredToken",
            SinkRefusedError,
            r"ExpiredToken.*Correct the files in sink\.store",
        ),
        (
            "AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.",
            SinkUnavailableError,
            "status 503",
        ),
        (
            "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Could not connect to server",
            SinkSilentError,
            r"does not answer\. It is retried",
        ),
        (
            "Generic S3 error: Error performing PUT http://x - HTTP error: error sending request",
            SinkSilentError,
            "check",
        ),
        ("something else AK/SECRET", SinkUnavailableError, "the library gave no reason"),
    ],
)
def test_the_error_says_what_failed_why_and_what_to_do(text: str, kind: type[SinkError], match: str) -> None:
    with pytest.raises(kind, match=rf"^reading x: the object store at https://s3\.example .*{match}") as found:
        raise store_error(text, "reading x", TOLD)
    assert type(found.value) is kind
    assert "AK" not in str(found.value)


def test_aws_names_of_codes_are_those_of_s3() -> None:
    assert code_in("AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: no") == "InvalidAccessKeyId"
    assert code_in("AWS Error SIGNATURE_DOES_NOT_MATCH during PutObject operation: no") == "SignatureDoesNotMatch"
    assert code_in("no code") is None
