"""URLs, credentials and what an error's text is taken for."""

from __future__ import annotations

import pytest

from launcher.errors import BadInput, SlipwayError, Unreachable
from launcher.store.address import StoreUrl, check_endpoint
from launcher.store.opening import open_store
from launcher.store.retrying import StoreFault, retrying


def test_parts_of_a_url() -> None:
    address = StoreUrl.parse("s3://bucket/a/b/?endpoint=http://127.0.0.1:7070&region=eu-west-1&anonymous=true")
    assert (address.bucket, address.prefix, address.anonymous) == ("bucket", "a/b", True)
    assert address.options["endpoint"] == "http://127.0.0.1:7070"
    assert StoreUrl.parse("gs://bucket").prefix == ""


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://key:secret@bucket/x", "credentials do not belong"),
        ("s3://bucket/x?region=us-east-1/model", "region has a `/`; .* before the `\\?`: s3://bucket/x/model\\?..."),
        ("az://runs?account=lab/model", "account has a `/`; .* before the `\\?`: az://runs/model\\?..."),
        ("s3://bucket/x?secret_access_key=abc", "unknown option `secret_access_key`; allowed: endpoint, region"),
        ("s3://bucket/x?endpoint", "options are name=value"),
        ("s3://bucket/x?anonymous=perhaps", "true or false"),
        ("s3:///x", "s3://bucket/prefix"),
        ("gs://bucket/x#y", "gs://bucket/prefix"),
        ("gs://bucket/x?endpoint=http://x", "allowed: anonymous"),
        ("s3://b/x?endpoint=minio:9000", "write http://minio:9000 or https://minio:9000"),
        ("s3://b/x?endpoint=//minio:9000", "write http://minio:9000 or"),
        ("s3://b/x?endpoint=minio", "write http://minio or"),
        ("s3://b/x?endpoint=http://minio:port", "endpoint: `http://minio:port` is no address of a server"),
        ("s3://b/x?endpoint=http://minio:99999", "is no address of a server"),
        ("s3://b/x?endpoint=http:// minio:1", "is no address of a server"),
        ("s3://b/x?endpoint=http://minio:1 ", "is no address of a server"),
        ("s3://b/x?endpoint=http://", "is no address of a server"),
        ("s3://b/x?endpoint=http:/minio:9000", "is no address of a server"),
        ("s3://b/x?endpoint=https://[::1", "is no address of a server"),
        ("s3://b/x?endpoint=HTTP://minio", "is no address of a server"),
        ("s3://b/x?endpoint=http://mi\u00f1io", "is no address of a server"),
        ("az://b/x?endpoint=azurite:1", "write http://azurite:1"),
        ("s3://b/x?endpoint=http://me:secret@minio", "credentials do not belong"),
        ("s3://minio:9000/bucket", "no name of a bucket; write s3://bucket/prefix\\?endpoint=http://minio:9000"),
        ("s3://b c/x", "`b c` is no name of a bucket"),
        ("s3://[b/x", "Invalid IPv6 URL"),
        ("s3://b/x?region=us east", "region is letters"),
        ("az://b/x?account=a b", "account is letters"),
    ],
)
def test_wrong_urls(url: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        open_store(url)
    assert "secret@" not in str(caught.value)
    assert "=abc" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["http://a_b:1", "https://[::1]:9000/", "http://127.0.0.1:1/path?x=1", "http://h"])
def test_an_endpoint_that_is_one(endpoint: str) -> None:
    check_endpoint(endpoint, "")


def test_an_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    store = open_store("s3://bucket/x")
    with pytest.raises(BadInput, match=r"the environment's AWS_ENDPOINT_URL: .* write http://minio:9000"):
        store.head("key")


def test_a_panic_of_obstore_is_an_error_for_the_user() -> None:
    class PanicException(BaseException):
        pass

    def panics() -> None:
        raise PanicException("request valid")

    with pytest.raises(SlipwayError, match="store s3://b: k: obstore failed: request valid"):
        retrying(panics, url="s3://b", key="k", deadline=1.0)


def fault(text: str, kind: str = "GenericError") -> StoreFault:
    return StoreFault(type(kind, (Exception,), {})(text))


@pytest.mark.parametrize(
    ("text", "kind", "passing"),
    [
        ("x - Server returned non-2xx status code: 503 X: <Error><Code>SlowDown</Code></Error>", "GenericError", True),
        ("x - Server returned non-2xx status code: 500 Internal", "GenericError", True),
        ("x - Server returned non-2xx status code: 429 Too Many", "GenericError", True),
        ("x - HTTP error: error sending request", "GenericError", True),
        ("x - Server returned non-2xx status code: 400 X: <Code>RequestTimeout</Code>", "GenericError", True),
        ("x - Server returned non-2xx status code: 400 X: <Code>InvalidBucketName</Code>", "GenericError", False),
        ("x - Server returned non-2xx status code: 400 X: <Code>ExpiredToken</Code>", "GenericError", True),
        ("x - Server returned non-2xx status code: 501 X: <Code>NotImplemented</Code>", "GenericError", False),
        ("x - Error performing GET http://x in 1ms - Received redirect without LOCATION, this", "GenericError", False),
        ("x - Server returned non-2xx status code: 403 X", "PermissionDeniedError", False),
        ("x: <Code>NoSuchBucket</Code>", "FileNotFoundError", False),
    ],
)
def test_which_errors_may_pass(text: str, kind: str, passing: bool) -> None:
    assert fault(text, kind).passing is passing


def test_an_error_shows_no_signature() -> None:
    seen = fault("Error - HTTP error: GET https://x.blob.core.windows.net/a?sig=SECRET&se=1 failed\n\nDebug source:\nq")
    assert "SECRET" not in seen.text
    assert "failed" in seen.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x - Received redirect without LOCATION, this normally", r"another region; add \?region="),
        ("status code: 400: <Code>AuthorizationHeaderMalformed</Code>", "another region"),
        ("status code: 403: <Code>RequestTimeTooSkewed</Code>", "clock is wrong"),
        (
            "status code: 403: <Code>AccessDenied</Code><Message>no</Message>",
            r"check the credentials.*AccessDenied: no",
        ),
    ],
)
def test_what_a_user_reads(text: str, says: str) -> None:
    with pytest.raises(Unreachable, match=says):
        fault(text).refuse("s3://b/p", "runs/a", 0)


@pytest.mark.parametrize(
    "url",
    [
        "gs://bucket/p?anonymous=true",
        "az://container/p?account=devstoreaccount1&endpoint=http://127.0.0.1:1/x&anonymous=1",
    ],
)
def test_google_and_azure_have_their_clients(url: str) -> None:
    from launcher.store.address import client

    made = client(StoreUrl.parse(url), timeout=1, deadline=1)
    assert made.prefix == "p"
    assert type(made).__name__ in ("GCSStore", "AzureStore")
    assert open_store(url).url == url
