"""The script that a machine runs once, at its first boot, as root. Pure text.

It starts the countdown to its end first, then checks the GPUs, gets docker and the image (or makes the Python
environment of a role that names none: venv.py), and starts the runtime until that says that nothing is left to do. The
machine has no API key: it can power itself off, but only a launcher can end its billing.

Where no runtime can start, it says why in an event of the run (records.given_up) before it powers off: nobody reads the
console of a machine that is gone. The event's key is the machine's own, and is written once.
"""

from __future__ import annotations

import json
import shlex
from typing import Final

from launcher.backends.docker.container import ENTRYPOINT, image
from launcher.backends.lambda_labs import renewal, venv
from launcher.backends.lambda_labs.access import too_long
from launcher.backends.lambda_labs.names import KIND, account_of, lifetime, where
from launcher.reasons import EXIT_DONE, EXIT_NEVER
from launcher.spec.hashing import encode_job
from launcher.spec.model import ResolvedJob
from launcher.spec.resolve.threads import THREADS, threads
from launcher.store.renewed import LOOK, RENEW

WORK: Final = "/work"
INSIDE: Final = "/run/slipway"
FOLDERS: Final = {  # in a container
    "SLIPWAY_WORKDIR": WORK,
    "SLIPWAY_PRIVATE": f"{INSIDE}/private.json",
    "SLIPWAY_JOB_FILE": f"{INSIDE}/job.json",
}
AFTER: Final = 600  # seconds from the machine's end by its own script to that by systemd
END: Final = "SLIPWAY_END"  # no line of the texts between two of these is this word: each is one line of JSON
NO_ACCESS: Final = "{}"  # where submit writes the credentials of the store
NO_ARCHIVE: Final = "-"  # where submit writes the URL of a Python environment's archive
NO_LAUNCH: Final = "-"  # where submit writes the number of the launch
NO_PLACE: Final = "-"  # where submit writes the URL for the event that says why no runtime could start
# of a program that docker or the kernel cannot start: as often in a row, and the machine gives up
NOT_STARTED: Final = "125|126|127"
FEW: Final = 4
SOON, OFTEN = 30, 20  # seconds, and how many ends within them in a row end the machine: about 20 minutes

_TEXT: Final = """#!/bin/sh
# Slipway: {member} of {run}. No API key is here.
set -u
umask 077
root=${{SLIPWAY_MACHINE:-/var/lib/slipway}}
mkdir -p "$root/run" "$root/work"{more}
# whatever happens below, the machine goes off; `shutdown -P +N` would go by the wall clock, which may jump
(sleep {seconds}; while :; do shutdown -P now; sleep 60; done) &
# where that process is killed, a timer of systemd does it, which no wall clock moves either
systemd-run -q --on-active={later} shutdown -P now 2>/dev/null
cat > "$root/job.json" <<'{end}'
{job}
{end}
# `launcher submit` writes here short-lived credentials of the store, and the number of this launch
cat > "{private}" <<'{end}'
{access}
{end}
cat > "$root/machine" <<'{end}'
{launch}
{end}
cat > "$root/place" <<'{end}'
{place}
{end}
say() {{ echo "[slipway] $*"; }}
leave() {{ say "$*"; shutdown -P now; exit 0; }}
# the last words of a program that failed, as a text of JSON may hold them
words() {{ tail -n 5 "$root/said" 2>/dev/null | tr '\\n\\t' '  ' | tr -cd ' !#-[]-~' | tail -c 600; }}
fail() {{
  reason=$1
  shift
  text=$(printf '%s' "$*" | tr -cd ' !#-[]-~')
  event='"seq":0,"kind":"evidence","message":"%s","fields":{{"reason":"%s"}},"time":%s}}'
  printf "{{\\"attempt\\":0,\\"writer\\":\\"machine-%s\\",$event" \
    "$(cat "$root/machine")" "{member}: $text" "$reason" "$(date +%s)" > "$root/told"
  place=$(cat "$root/place")
  case $place in
    http*) curl -fsS --retry 5 --max-time 60 -H 'Content-Type: application/json' -T "$root/told" "$place" ;;
    /*)
      umask 022
      mkdir -p "${{place%/*}}" && cp "$root/told" "${{place%/runs/*}}/.tmp/machine-$(cat "$root/machine")" \
        && mv "${{place%/runs/*}}/.tmp/machine-$(cat "$root/machine")" "$place" && chown {user}:{user} "$place"
      ;;
  esac
  leave "$text"
}}
{gpus}{software}
address=$(hostname -I 2>/dev/null | cut -d ' ' -f 1)
cat > "$root/env" <<'{end}'
{environment}
{end}
printf 'SLIPWAY_PLACEMENT={{"kind":"{kind}","where":"%s","host":"%s","container":"%s"}}\\n' \\
  {where} "$address" "$(cat "$root/machine")" >> "$root/env"
{entering}{renewing}pause=5
quick=0
none=0
up() {{ cut -d . -f 1 /proc/uptime; }}
while :; do
  began=$(up)
  # the runtime empties its copy of the credentials
  cp "$root/job.json" "{private}" "$root/run/"
  chown -R {user}:{user} "$root/run" "$root/work" 2>/dev/null
{start}
  code=$?
  cat "$root/said" >&2
  case $code in {done}|{never}) leave "the runtime ended with $code" ;; esac
  [ $(($(up) - began)) -lt {soon} ] && quick=$((quick + 1)) || quick=0
  case $code in {not_started}) none=$((none + 1)) ;; *) none=0 ;; esac
  [ $none -lt {few} ] || fail infrastructure \\
    "the runtime could not be started, $none times in a row, exit code $code: $(words)"
  [ $quick -lt {often} ] || fail infrastructure \\
    "the runtime ended within {soon} s, $quick times in a row, at last with exit code $code: $(words)"
  say "the runtime ended with $code; again in $pause s"
  sleep $pause
  [ $pause -ge 60 ] || pause=$((pause * 2))
done
"""
_GPUS: Final = """count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
[ "$count" -ge {gpus} ] || fail infrastructure "nvidia-smi shows $count GPUs, the job needs {gpus}"
"""
_DOCKER: Final = """command -v docker >/dev/null || {{ apt-get update -q && apt-get install -qy docker.io; }}
{toolkit}for try in 1 2 3 4 5; do
  docker pull -q {image} 2> "$root/said" && break
  cat "$root/said"
  sleep $((try * 10))
done
docker image inspect {image} >/dev/null 2>&1 || fail image_pull "the image cannot be pulled: $(words)"
case "$(uname -m)/$(docker image inspect -f '{{{{.Architecture}}}}' {image})" in
  x86_64/amd64|aarch64/arm64|*/) ;;
  *) fail config_error "the image is for another processor than $(uname -m)" ;;
esac"""
_TOOLKIT: Final = """docker info 2>/dev/null | grep -qi nvidia || {
  apt-get install -qy nvidia-container-toolkit && nvidia-ctk runtime configure --runtime=docker \\
    && systemctl restart docker
}
"""

# the file is replaced by root, in a container of its own, which sees the same image and nothing of the run
_RENEWING: Final = """while sleep {look}; do
  docker run --rm --network=host --user=0:0 --cap-drop=ALL --security-opt=no-new-privileges \\
    --env-file="$root/env" --volume="$root/access:{inside}" --entrypoint=python {image} \\
    -m launcher.runtime.renewing
done &
"""


def script(job: ResolvedJob, run: str, role: str, rank: int) -> str:
    """The user data of one member's machine, without the credentials of the store."""
    need = job.roles[role].resources
    bare = venv.digest_of(job, role)
    reference = "" if bare else shlex.quote(image(job, role))
    variables = {
        THREADS: str(threads(job.roles[role])),
        "PYTHONUNBUFFERED": "1",
        **({} if bare else {"HOME": WORK}),
        "SLIPWAY_STORE": job.store,
        "SLIPWAY_RUN": run,
        "SLIPWAY_ROLE": role,
        "SLIPWAY_RANK": str(rank),
        **({} if bare else FOLDERS),
        # where they are kept; the runtime fetches them with the credentials that it has for the store
        **({RENEW: renewal.parameter_arn(job, run)} if renewed(job) else {}),
        **({"SLIPWAY_SECRETS": json.dumps(dict(sorted(job.secrets.items())))} if job.secrets else {}),
    }
    user = venv.user_of(job) if bare else 1000
    if bare:
        renewing, software = venv.RENEWING, venv.software(job.options["venv"]["python"], bare, END, NO_ARCHIVE)
        start = f'  "$root/enter" {shlex.join(ENTRYPOINT)} 2> "$root/said"'
    else:
        renewing = _RENEWING
        software = _DOCKER.format(image=reference, toolkit=_TOOLKIT if need.gpus else "")
        run_image = " ".join(_flags(job, role)) + f" {reference} {shlex.join(ENTRYPOINT[1:])}"
        start = f'  docker rm -f slipway >/dev/null 2>&1\n  docker run {run_image} 2> "$root/said"'
    return _TEXT.format(
        member=f"{role}-{rank}",
        run=run,
        more=' "$root/access"' if renewed(job) else "",
        seconds=lifetime(job),
        later=lifetime(job) + AFTER,
        end=END,
        job=encode_job(job).decode(),
        access=NO_ACCESS,
        private="$root/access/private.json" if renewed(job) else "$root/private.json",
        renewing=renewing.format(look=f"{LOOK:.0f}", inside=INSIDE, image=reference) if renewed(job) else "",
        launch=NO_LAUNCH,
        place=NO_PLACE,
        not_started=NOT_STARTED,
        few=FEW,
        soon=SOON,
        often=OFTEN,
        gpus=_GPUS.format(gpus=need.gpus) if need.gpus else "",
        software=software,
        entering=venv.ENTERING.format(end=END, user=user) if bare else "",
        user=user,
        environment="\n".join(f"{name}={value}" for name, value in variables.items()),
        kind=KIND,
        where=shlex.quote(where(account_of(job), run)),
        start=start,
        done=EXIT_DONE,
        never=EXIT_NEVER,
    )


def renewed(job: ResolvedJob) -> bool:
    """Whether a reaper gives new credentials to the job's machines while they run."""
    return renewal.OPTION in job.options and job.store.startswith("s3://") and too_long(job)


def _flags(job: ResolvedJob, role: str) -> list[str]:
    need = job.roles[role].resources
    flags = [
        "--rm",
        "--name=slipway",
        f"--entrypoint={ENTRYPOINT[0]}",  # the image has one, too: ours would take the words for its arguments
        "--network=host",  # other members reach it at the machine's private address
        "--user=1000:1000",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        '--env-file="$root/env"',
        f'--volume="$root/work:{WORK}"',
        f'--volume="$root/run:{INSIDE}"',
    ]
    flags += [f"--volume=/lambda/nfs/{name}:/lambda/nfs/{name}" for name in job.options.get("file_systems", ())]
    if need.gpus:
        flags.append("--gpus=all")
    if need.shm is not None:
        flags.append(f"--shm-size={need.shm}")
    return flags


def completed(user_data: str, access: str, launch: str) -> str:
    """The user data with credentials (one line of JSON) and the number of the launch in their places."""
    return _put(_put(user_data, "private.json", NO_ACCESS, access), "machine", NO_LAUNCH, launch)


def with_event_url(user_data: str, place: str) -> str:
    """The user data with the place of the event that says why no runtime could start: a URL that takes a PUT, or a
    path."""
    return _put(user_data, "place", NO_PLACE, place)


def with_archive(user_data: str, url: str) -> str:
    """The user data with the URL of its environment's archive; as it is where it needs none."""
    return _put(user_data, "archive", NO_ARCHIVE, url)


def _put(user_data: str, name: str, there: str, text: str) -> str:
    return user_data.replace(f"/{name}\" <<'{END}'\n{there}\n", f"/{name}\" <<'{END}'\n{text}\n", 1)
