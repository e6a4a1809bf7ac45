"""New credentials for machines that live longer than AWS lets a session live: a reaper puts them into a parameter of
Systems Manager, from which the machine fetches them with the ones that it has (launcher/store/renewed.py).

What is in the parameter is as short-lived as what it replaces. Every step may be interrupted and repeated, by several
reapers at once: the last one to write wins, and what each of them wrote holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from launcher.backends.lambda_labs import access, names
from launcher.backends.lambda_labs.wire import CloudInstance
from launcher.errors import SlipwayError, Unreachable
from launcher.spec.hashing import decode_job
from launcher.spec.model import ResolvedJob, at_turn, backend_order
from launcher.store import Store, layout
from launcher.store.layout import RunKeys
from launcher.store.renewed import EXPIRES, ISSUED

OPTION: Final = "renew"
SHARE: Final = 3  # credentials are renewed once this part of their life is over: two more tries are left
MARK: Final = b"{}"  # always the same: its time is what it says
SEEN: Final = 900.0  # seconds since a reaper looked: it runs as a service


def parameter_arn(job: ResolvedJob, run: str) -> str:
    """The ARN of the run's parameter."""
    return f"{str(job.options[OPTION]).rstrip('/')}/{run}"


def renew(job: ResolvedJob, run: str, launched: float, now: float, *, plan: bool) -> bool:
    """Writes new credentials of the run's store, if a good part of the present ones' life is over. `launched`: when its
    first machine got its own, `now`: both in seconds since the epoch. Whether it was time. Raises Unreachable."""
    from botocore.exceptions import BotoCoreError, ClientError

    client, name = _client(job, run)
    try:
        known = json.loads(client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
        issued, expires = float(known[ISSUED]), float(known[EXPIRES])
    except (ClientError, BotoCoreError) as error:
        if not _missing(error):
            raise Unreachable(f"{run}: new credentials cannot be kept in {parameter_arn(job, run)}: {error}") from None
        issued, expires = launched, launched + access.life(job)
    except (ValueError, KeyError, TypeError):  # somebody else's, or cut off
        issued = expires = 0.0
    if now < issued + (expires - issued) / SHARE:
        return False
    if not plan:
        value = json.dumps(access.access(job))
        try:
            client.put_parameter(
                Name=name, Value=value, Type="SecureString", Tier="Intelligent-Tiering", Overwrite=True
            )
        except (ClientError, BotoCoreError) as error:
            raise Unreachable(f"{run}: new credentials cannot be kept in {parameter_arn(job, run)}: {error}") from None
    return True


def renew_all(
    machines: Mapping[str, Sequence[CloudInstance]],
    store_of: Callable[[str], Store],
    account: str,
    own: str,
    *,
    plan: bool,
) -> Iterator[tuple[str, str, bool]]:
    """As `Backend.renew`. `machines`: of each run; `own`: the URL of the reaper's store. Every store gets the mark that
    a reaper was here, without which submit takes no run that needs one."""
    stores = {own} if own.startswith("s3://") else set()
    for run, living in machines.items():
        url = living[0].tag(names.STORE)
        if not url.startswith("s3://"):
            continue
        try:
            store, job = store_of(url), _job(store_of(url), run)
            stores.add(url)
            if job is None or not access.too_long(job) or store.head(RunKeys(run).result) is not None:
                continue
            launched = min(map(_launched, living))
            if renew(job, run, launched, store.now(), plan=plan):
                yield run, f"new credentials of {url} for {access.life(job) / 3600:.0f} h", True
        except (SlipwayError, OSError) as error:  # one run's trouble is not that of the others
            yield run, str(error), False
    for url in () if plan else sorted(stores):
        try:
            store_of(url).put(layout.reaper(names.NAME, account), MARK)
        except (SlipwayError, OSError) as error:
            yield url, f"the reaper leaves no mark there: {error}", False


def _launched(machine: CloudInstance) -> float:
    """Seconds since the epoch; 0 without the tag. Raises SlipwayError for a tag that somebody else wrote."""
    try:
        return float(machine.tag(names.LAUNCHED) or 0.0)
    except ValueError as error:
        raise SlipwayError(f"its machine's tag {names.LAUNCHED} is not a time: {error}") from None


def _job(store: Store, run: str) -> ResolvedJob | None:
    """The run's job as Lambda runs it, if its credentials are renewed."""
    body = store.read(RunKeys(run).job)
    job = decode_job(body[0]) if body is not None else None
    if job is None or names.NAME not in backend_order(job):
        return None
    job = at_turn(job, backend_order(job).index(names.NAME))
    return job if OPTION in job.options else None


def unattended(job: ResolvedJob, store_of: Callable[[str], Store], account: str) -> str:
    """Why nobody would renew the job's credentials; "" if they need no renewal, or a reaper looked lately."""
    if not job.store.startswith("s3://") or not access.too_long(job):
        return ""
    store = store_of(job.store)
    mark = store.head(layout.reaper(names.NAME, account))
    silent = None if mark is None else store.now() - mark.modified
    return "" if silent is not None and silent < SEEN else access.unattended(job, silent)


def forget(store: Store, run: str) -> None:
    """Deletes the run's parameter, if there is one. Raises Unreachable."""
    job = _job(store, run)
    if job is None:
        return
    from botocore.exceptions import BotoCoreError, ClientError

    client, name = _client(job, run)
    try:
        client.delete_parameter(Name=name)
    except (ClientError, BotoCoreError) as error:
        if not _missing(error):
            raise Unreachable(f"{run}: {parameter_arn(job, run)} cannot be deleted: {error}") from None


def _missing(error: Exception) -> bool:
    answer: dict[str, Any] = getattr(error, "response", {})
    return bool(answer.get("Error", {}).get("Code") == "ParameterNotFound")


def _client(job: ResolvedJob, run: str) -> tuple[Any, str]:
    """(a client of Systems Manager where the parameter is, its name there)."""
    import boto3

    arn = parameter_arn(job, run)
    return boto3.client("ssm", region_name=arn.split(":")[3]), arn.partition(":parameter")[2]
