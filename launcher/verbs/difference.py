"""Says of new runs that nothing but their code or this machine's packages differs from the newest run of their name:
perhaps nobody meant that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from launcher.spec.code.environment import LocalEnvironment, describe_changes, is_local, stored_environment
from launcher.spec.code.overlay import Overlay, Packed
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import Code, ResolvedJob
from launcher.spec.resolve.group import Group
from launcher.store.base import Store
from launcher.userdata.newest_runs import newest
from launcher.verbs.overlays import changed_files

_NAMED: Final = 5  # files in a line, at most


def only_code_or_packages_differ(
    store: Store,
    group: Group,
    new: Iterable[ResolvedJob],
    overlays: Mapping[str, Packed],
    environment: LocalEnvironment | None = None,
) -> Iterator[str]:
    """A line for each such run. `environment`: this machine's, where the jobs run in it. Costs one request for each
    overlay of before that differs, usually one."""
    known: dict[tuple[str, str], list[str]] = {}
    for job in new:
        run = run_id(job)
        before = newest(store.url, group.names.get(run, job.name))
        if before is None or run_hash(_bare(before)) != run_hash(_bare(job)):
            continue
        parts = []
        if before.code is not None and job.code is not None and before.code != job.code:
            digests = before.code.digest, job.code.digest
            overlay = overlays.get(job.code.digest)
            if digests not in known:
                known[digests] = changed_files(store, digests[0], overlay) if isinstance(overlay, Overlay) else []
            parts.append(f"the files of `code`{_listed(known[digests])}")
        was = {role.image.environment for role in before.roles.values()}
        if environment is not None and was != {role.image.environment for role in job.roles.values()}:
            old = next((found for digest in was if (found := stored_environment(digest)) is not None), None)
            parts.append(f"packages{describe_changes(old and old.parts, environment.parts)}")
        if parts:
            yield (
                f"{run} is a new run: nothing differs from {run_id(before)} but {' and '.join(parts)}; "
                f"`launcher results {run_id(before)}` shows the earlier one"
            )


def _bare(job: ResolvedJob) -> ResolvedJob:
    """The job as if its code and its environment were the same."""
    roles = {}
    for name, role in job.roles.items():
        same = "" if is_local(role.image.environment) else role.image.environment
        image = msgspec.structs.replace(role.image, environment=same)
        roles[name] = msgspec.structs.replace(role, image=image)
    return msgspec.structs.replace(job, code=Code("") if job.code is not None else None, roles=roles)


def _listed(items: list[str]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return f" ({', '.join(items[:_NAMED])}{more})" if items else ""
