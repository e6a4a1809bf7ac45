"""Short-lived credentials of the store for one machine: nothing that outlives them is ever on it.

An S3 store: AssumeRole where the block names a role, otherwise GetSessionToken of the submitter's own keys, for as long
as the machine may live. A folder is allowed below a file system that the machine mounts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from launcher.backends.lambda_labs.names import lifetime
from launcher.errors import BadInput, Unreachable
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob

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
    longest = ROLE if "role" in job.options else SESSION
    if lifetime(job) > longest:
        return [
            f"limits.deadline: a machine may live {lifetime(job) / 3600:.1f} h, its credentials at most "
            f"{longest / 3600:.0f} h, and nothing renews them yet; allowed: a deadline up to "
            f"{(longest - lifetime(job) + (job.limits.deadline or 0)) / 3600:.1f} h"
        ]
    return []


def access(job: ResolvedJob) -> dict[str, str]:
    """The variables that give the runtime access to the store. Raises Unreachable when AWS gives no credentials."""
    if not job.store.startswith("s3://"):
        return {}
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    duration = max(SHORTEST, lifetime(job))
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
    }


def check(group: Sequence[ResolvedJob], folders: Sequence[str]) -> None:
    if wrong := [f"{job.name}: {line}" for job in group for line in refusals(job, folders)]:
        raise BadInput("\n".join(wrong))
