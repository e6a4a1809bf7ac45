"""Short-lived credentials of the store for one machine: nothing that outlives them is ever on it.

An S3 store: AssumeRole where the block names a role, otherwise GetSessionToken of the submitter's own keys, for as long
as the machine may live. A folder is allowed below a file system that the machine mounts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final
from urllib.parse import unquote

from launcher.backends.lambda_labs.names import MACHINE, lifetime
from launcher.errors import Unreachable, refused
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from launcher.store import layout
from launcher.store.address import StoreUrl
from launcher.store.renewed import EXPIRES, ISSUED
from launcher.trees import document

FRESH: Final = 60.0  # seconds for which launches share credentials
SHORTEST: Final = 900  # seconds; AWS gives none for less
ROLE: Final = 12 * 3600  # seconds; the longest session of a role
SESSION: Final = 36 * 3600  # seconds; the longest session of a user's own keys
# where the store is; everything else of the submitter's shell stays there
PLACE: Final = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


def refusals(job: ResolvedJob, folders: Sequence[str]) -> list[str]:
    """Why a machine cannot be given access to the job's store. `folders`: more folders that machines see."""
    scheme, _, rest = job.store.partition("://")
    if scheme == "file":
        mounts = [*(f"/lambda/nfs/{name}/" for name in job.options.get("file_systems", ())), *folders]
        if any(f"{rest}/".startswith(mount) for mount in mounts):
            return []
        return [f"store: a machine of Lambda does not see {job.store}; allowed: s3://, or a folder below file_systems"]
    if scheme != "s3":
        return [f"store: there are no short-lived credentials for {scheme}:// yet; allowed: s3://"]
    if too_long(job) and "renew" not in job.options:
        return [
            f"{_too_long(job)}, and nothing renews them; allowed: {_up_to(job)}, or `lambda.renew` and a reaper that "
            "runs as a service"
        ]
    return []


def longest(job: ResolvedJob) -> int:
    """Seconds for which AWS may give credentials to the job's machines."""
    return ROLE if "role" in job.options else SESSION


def too_long(job: ResolvedJob) -> bool:
    """Whether a machine may live for longer than its first credentials."""
    return lifetime(job) > longest(job)


def life(job: ResolvedJob) -> int:
    """Seconds for which the job's credentials are asked for."""
    return max(SHORTEST, min(lifetime(job), longest(job)))


def unattended(job: ResolvedJob, silent: float | None) -> str:
    """Why a job whose credentials must be renewed is refused. `silent`: seconds since a reaper looked; None: never."""
    since = "has ever looked" if silent is None else f"has looked for {silent / 60:.0f} min"
    return (
        f"{_too_long(job)}, and no reaper {since}: run `launcher reap --backend lambda` as a service "
        f"({document('docs/howto/lambda.md')}); allowed without one: {_up_to(job)}"
    )


def _too_long(job: ResolvedJob) -> str:
    return (
        f"limits.deadline: a machine may live {lifetime(job) / 3600:.1f} h, its credentials at most "
        f"{longest(job) / 3600:.0f} h"
    )


def _up_to(job: ResolvedJob) -> str:
    return f"a deadline up to {(longest(job) - lifetime(job) + (job.limits.deadline or 0)) / 3600:.1f} h"


def access(job: ResolvedJob) -> dict[str, str]:
    """The variables that give the runtime access to the store. Raises Unreachable when AWS gives no credentials."""
    if not job.store.startswith("s3://"):
        return {}
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    duration, issued = life(job), time.time()
    try:
        client = boto3.client("sts")
        if role := job.options.get("role"):
            answer: dict[str, Any] = client.assume_role(
                RoleArn=role, RoleSessionName=run_id(job)[:64], DurationSeconds=duration
            )
        else:
            answer = client.get_session_token(DurationSeconds=duration)
    except (BotoCoreError, ClientError) as error:
        hint = "name a role that may use the bucket: `lambda: {role: arn:aws:iam::...}`"
        if role := job.options.get("role"):
            hint = (
                f"may your keys take {role}, and is its maximum session duration {duration} s or more? A session that "
                "was itself made from a role gets one hour at most"
            )
        raise Unreachable(f"no short-lived credentials for {job.store}: {error}; {hint}") from None
    credentials = answer["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
        "AWS_SESSION_TOKEN": credentials["SessionToken"],
        **{name: os.environ[name] for name in PLACE if os.environ.get(name)},
        **({ISSUED: f"{issued:.0f}", EXPIRES: f"{issued + duration:.0f}"} if "renew" in job.options else {}),
    }


class LaunchAccess:
    """The variables of `access` for each launch of a job's machines, made anew once they are older than `FRESH`: their
    life must not pass while submit waits for capacity."""

    def __init__(self, job: ResolvedJob) -> None:
        self.job = job
        self.made = -inf
        self.given: dict[str, str] = {}

    def get(self) -> dict[str, str]:
        """Raises Unreachable."""
        now = time.monotonic()
        if now - self.made >= FRESH:
            self.given, self.made = access(self.job), now
        return self.given


def archive_url(job: ResolvedJob, digest: str, given: Mapping[str, str]) -> str:
    """From where the job's machines fetch an object of the store, without a client of it. `given`: their credentials,
    which sign the URL, so that it ends with them."""
    key = layout.blob(digest)
    return _signed("get_object", job, key, given) if job.store.startswith("s3://") else f"{job.store}/{key}"


def event_url(job: ResolvedJob, number: str, given: Mapping[str, str]) -> str:
    """Where a machine says that no runtime can start on it. `number`: of its launch."""
    key = layout.RunKeys(run_id(job)).event(0, f"{MACHINE}-{number}", 0)
    if job.store.startswith("s3://"):
        return _signed("put_object", job, key, given)
    return f"{unquote(job.store.removeprefix('file://'))}/{key}"


def _signed(action: str, job: ResolvedJob, key: str, given: Mapping[str, str]) -> str:
    import boto3
    from botocore.config import Config

    place = StoreUrl.parse(job.store)
    endpoint = place.endpoint or None
    client = boto3.client(
        "s3",
        region_name=place.options.get("region"),
        endpoint_url=endpoint,
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=given["AWS_SESSION_TOKEN"],
        config=Config(signature_version="s3v4", s3={"addressing_style": "path" if endpoint else "auto"}),
    )
    parameters = {"Bucket": place.bucket, "Key": "/".join(filter(None, (place.prefix, key)))}
    return str(client.generate_presigned_url(action, Params=parameters, ExpiresIn=life(job)))


def check(group: Sequence[ResolvedJob], folders: Sequence[str]) -> None:
    if wrong := [(job.name, line) for job in group for line in refusals(job, folders)]:
        raise refused(wrong)
