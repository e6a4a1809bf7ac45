"""Makes obstore's client from a URL: bucket, endpoint, credentials. Sends no request."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from launcher.errors import BadInput, Unreachable
from launcher.store.node_identity import node_identity
from launcher.store.renewed import RENEW, RenewedAccess

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, GCSStore, RetryConfig, S3Store

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "s3": ("endpoint", "region", "anonymous"),
    "gs": ("anonymous",),
    "az": ("account", "endpoint", "anonymous"),
}
_NAME: Final = re.compile(r"[A-Za-z0-9._$-]+")
_SERVER: Final = re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(?:/[!-~]*)?")


class StoreUrl(msgspec.Struct, frozen=True):
    """`scheme://bucket/prefix?option=value`."""

    url: str
    scheme: str
    bucket: str
    prefix: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, url: str) -> StoreUrl:
        """Raises BadInput for a malformed URL and for one with credentials: the URL is written into job.json."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise BadInput(f"store `{url.partition(':')[0]}://...`: {error}; write scheme://bucket/prefix") from None
        allowed = OPTIONS[parts.scheme]
        if "@" in parts.netloc:
            raise BadInput(f"store `{parts.scheme}://...`: credentials do not belong in the URL")
        if ":" in parts.netloc:  # a server's address in the place of the bucket's name
            raise BadInput(
                f"store `{url}`: `{parts.netloc}` is no name of a bucket; write "
                f"{parts.scheme}://bucket/prefix?endpoint=http://{parts.netloc}"
            )
        if not parts.netloc or parts.fragment:
            raise BadInput(f"store `{url}`: write {parts.scheme}://bucket/prefix")
        if not _NAME.fullmatch(parts.netloc):
            raise BadInput(
                f"store `{url}`: `{parts.netloc}` is no name of a bucket; allowed: letters, digits, dots, dashes"
            )
        try:
            query = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
        except ValueError:
            raise BadInput(f"store `{parts.scheme}://{parts.netloc}{parts.path}`: options are name=value") from None
        options = dict(query)
        unknown = sorted(set(options) - set(allowed))
        if unknown:
            raise BadInput(
                f"store `{parts.scheme}://{parts.netloc}{parts.path}`: unknown option `{unknown[0]}`; "
                f"allowed: {', '.join(allowed)}"
            )
        if "endpoint" in options:
            check_endpoint(options["endpoint"], f"store `{parts.scheme}://{parts.netloc}{parts.path}`: endpoint")
        for name in ("region", "account"):
            if "/" in options.get(name, ""):
                right = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/{options[name].partition('/')[2]}?..."
                raise BadInput(
                    f"store `{url}`: {name} has a `/`; what belongs to the path stands before the `?`: {right}"
                )
            if name in options and not _NAME.fullmatch(options[name]):
                raise BadInput(f"store `{url}`: {name} is letters, digits and dashes")
        if options.get("anonymous", "1") not in ("1", "true", "0", "false"):
            raise BadInput(f"store `{url}`: anonymous is true or false")
        return cls(url, parts.scheme, parts.netloc, parts.path.strip("/"), options)

    @property
    def anonymous(self) -> bool:
        return self.options.get("anonymous") in ("1", "true")

    @property
    def endpoint(self) -> str:
        """Of the URL, or for S3 of the environment; empty for the provider's own. Raises BadInput."""
        if given := self.options.get("endpoint"):
            return given
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if self.scheme == "s3" else ():
            if given := os.environ.get(name):
                check_endpoint(given, f"store `{self.url}`: the environment's {name}")
                return given
        return ""


def check_endpoint(given: str, where: str) -> None:
    """Raises BadInput for what is no address of a server. obstore answers some of them with a panic of Rust's."""
    if (found := _SERVER.fullmatch(given)) is not None and int(found[1] or 1) in range(1, 65536):
        return
    if "@" in given:
        raise BadInput(f"{where}: credentials do not belong in the address of a server")
    bare = given.strip().rpartition("//")[2]
    right = bare if _SERVER.fullmatch(f"http://{bare}") and "://" not in given else "HOST:PORT"
    raise BadInput(f"{where}: `{given}` is no address of a server; write http://{right} or https://{right}")


def client(address: StoreUrl, *, timeout: float, deadline: float, retries: int = 0) -> S3Store | GCSStore | AzureStore:
    """obstore's client. `timeout` bounds one request, body included; `deadline` its own retries (both seconds).

    retries  how often obstore itself repeats a request, at least a second apart; used for the many requests of a large
             object
    """
    from obstore.store import AzureStore, GCSStore, S3Store

    endpoint = address.endpoint
    http: ClientConfig = {
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(5.0, timeout)),
        "allow_http": endpoint.startswith("http://"),
    }
    again: RetryConfig = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=deadline),
        "backoff": {"init_backoff": timedelta(seconds=1.05), "max_backoff": timedelta(seconds=4), "base": 2},
    }
    shared: dict[str, Any] = {"prefix": address.prefix or None, "client_options": http, "retry_config": again}
    try:
        if address.scheme == "gs":
            return GCSStore(address.bucket, **shared, skip_signature=address.anonymous)
        if address.scheme == "az":
            options: dict[str, Any] = (
                {"account_name": address.options["account"]} if "account" in address.options else {}
            )
            options |= {"endpoint": endpoint} if endpoint else {}
            if not address.anonymous and (identity := node_identity()) is not None:
                options["credential_provider"] = identity
            return AzureStore(address.bucket, **shared, **options, skip_signature=address.anonymous)
        return S3Store(address.bucket, **shared, **_s3(address, endpoint))
    except Exception as error:
        if isinstance(error, Unreachable) or type(error).__module__.partition(".")[0] not in ("obstore", "builtins"):
            raise
        raise BadInput(f"store `{address.url}`: {str(error).partition(chr(10))[0]}") from None


def _s3(address: StoreUrl, endpoint: str) -> dict[str, Any]:
    """Endpoint, region and credentials as boto3 would choose them. The import of boto3 takes half a second, so it is
    imported only if needed."""
    region = address.options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    # obstore reads this environment variable itself and would prefer it to `endpoint`
    settings: dict[str, Any] = {"aws_endpoint_url_s3": endpoint} if endpoint else {}
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if address.anonymous:
        settings["skip_signature"] = True
    elif key and secret and os.environ.get(RENEW):
        settings["credential_provider"] = RenewedAccess(os.environ)
    elif key and secret:
        # boto3 reads the environment first, even if AWS_PROFILE is set
        settings |= {"access_key_id": key, "secret_access_key": secret}
        token = os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_SECURITY_TOKEN")
        settings |= {"session_token": token} if token else {}
    else:
        settings["credential_provider"] = provider = _provider(address)
        region = region or provider.config.get("region")
    if not region and not endpoint and not address.anonymous:
        import boto3

        region = boto3.Session().region_name
    return settings | {"region": region or "us-east-1"}


def _provider(address: StoreUrl) -> Any:
    import botocore.exceptions
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except (ValueError, botocore.exceptions.BotoCoreError) as error:
        reason = "" if isinstance(error, ValueError) else f" ({error})"
        raise Unreachable(
            f"store {address.url}: no AWS credentials found{reason}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "run `aws configure` or `aws sso login`, or add ?anonymous=true to the URL of a public bucket"
        ) from None
