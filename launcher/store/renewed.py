"""Credentials of an S3 store that are replaced while they are used: a reaper keeps the next ones in a parameter of
Systems Manager (docs/explanation/lambda.md), encrypted by AWS, and this process fetches them with the ones it has."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

RENEW: Final = "SLIPWAY_RENEW"  # the parameter's ARN
# seconds since the epoch, beside the credentials: since when they hold, and until when
ISSUED, EXPIRES = "SLIPWAY_ACCESS_ISSUED", "SLIPWAY_ACCESS_EXPIRES"
KEY, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
LOOK: Final = 600.0  # seconds between two looks at the parameter


def newer(environ: Mapping[str, str]) -> dict[str, str]:
    """The credentials in the parameter, if they hold for longer than those in `environ`; {} if they don't, or if AWS
    does not tell."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    arn = environ[RENEW]
    client = boto3.client(
        "ssm",
        region_name=arn.split(":")[3],
        aws_access_key_id=environ.get(KEY),
        aws_secret_access_key=environ.get(SECRET),
        aws_session_token=environ.get(TOKEN),
        config=Config(connect_timeout=10, read_timeout=20, retries={"total_max_attempts": 2}),
    )
    try:
        found = json.loads(client.get_parameter(Name=arn, WithDecryption=True)["Parameter"]["Value"])
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise ValueError(f"the parameter {arn} holds something else")
    except ClientError as error:
        if str(error.response.get("Error", {}).get("Code", "")) != "ParameterNotFound":
            _say(f"AWS does not give new credentials of the store: {error}")
        return {}
    except (BotoCoreError, ValueError) as error:
        _say(f"AWS does not give new credentials of the store: {error}")
        return {}
    return found if _until(found) > _until(environ) and {KEY, SECRET, TOKEN} <= set(found) else {}


def _until(environ: Mapping[str, str]) -> float:
    try:
        return float(environ.get(EXPIRES) or 0.0)
    except ValueError:
        return 0.0


def _say(line: str) -> None:
    print(f"[slipway] {line}", file=sys.stderr, flush=True)


class RenewedAccess:
    """obstore's provider of credentials: those of the process's environment, replaced by newer ones once in a while."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ, self._looked, self._lock = environ, time.monotonic(), threading.Lock()

    def __call__(self) -> dict[str, Any]:
        environ = self._environ
        with self._lock:
            if time.monotonic() - self._looked >= LOOK / 2 or _until(environ) < time.time() + LOOK:
                environ.update(newer(environ))
                self._looked = time.monotonic()
            # obstore asks again some minutes before this time, whether the credentials hold for longer or not
            again = datetime.now(UTC) + timedelta(seconds=LOOK)
            return {
                "access_key_id": environ[KEY],
                "secret_access_key": environ[SECRET],
                "token": environ[TOKEN],
                "expires_at": again,
            }
