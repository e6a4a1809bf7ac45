"""A role without an image: its machine makes a Python environment with uv and the lock's hashes, from the archive that
`launcher.spec.code.venv` packed, and starts the runtime in it. Pure text; script.py puts it into the user data.

The runtime and the command run as a user that is not root, cannot become root, has no capabilities, sees no home of
another user and only its own processes.
"""

from __future__ import annotations

from typing import Final

from launcher.spec.code.venv import LOCK, SOURCE
from launcher.spec.model import ResolvedJob

OWN: Final = 2000  # the uid of the runtime: no account of the machine, so it may use sudo nowhere
SHARED: Final = 1000  # the uid where the store is a mounted folder, which belongs to the first user of the machine

UV_LOCK: Final = f"{SOURCE}/launcher/backends/lambda_labs/uv.lock"

_SOFTWARE: Final = """# the lock and Slipway's source are one archive; `launcher submit` writes here where it is
cat > "$root/archive" <<'{end}'
{archive}
{end}
python() {{ "$root/venv/env/bin/python" "$@"; }}
unpack() {{
  curl -fsS --retry 5 --max-time 900 -o "$root/venv.tar" "$(cat "$root/archive")" || return 1
  [ "$(sha256sum "$root/venv.tar" | cut -c 1-64)" = {digest} ] || {{ say "the archive is not {short}"; return 1; }}
  rm -rf "$root/venv" && mkdir "$root/venv" && tar -xf "$root/venv.tar" -C "$root/venv" --no-same-owner
}}
get_uv() {{
  uv=$(command -v uv) && return
  python3 -m venv "$root/venv/uv" || {{
    apt-get update -q && apt-get install -qy python3-venv && python3 -m venv --clear "$root/venv/uv"
  }} || return 1
  "$root/venv/uv/bin/pip" install -q --require-hashes -r "$root/venv/{uv_lock}" && uv="$root/venv/uv/bin/uv"
}}
prepare() {{
  export UV_CACHE_DIR="$root/venv/cache" UV_PYTHON_INSTALL_DIR="$root/venv/pythons" UV_NO_CONFIG=1
  "$uv" venv -q --clear --python {python} "$root/venv/env" &&
    "$uv" pip sync -q --python "$root/venv/env/bin/python" --require-hashes "$root/venv/{lock}" &&
    echo "$root/venv/{source}" > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/slipway.pth"
}}
again() {{
  for try in 1 2 3 4 5; do
    "$1" && return
    say "$2; try $try of 5"
    sleep $((try * 10))
  done
  fail infrastructure "there is no Python environment of {short}: $2"
}}
again unpack "its archive could not be fetched"
again get_uv "uv could not be installed"
again prepare "the Python environment could not be made"
rm -rf "$root/venv/cache" "$root/venv.tar"
chmod -R a+rX "$root/venv" && chmod 711 "$root" && chmod 755 "$root/run" "$root/work"
"""

# the user's words run with the variables of $root/env and no others; its own processes end with the first of them
ENTERING: Final = """cat >> "$root/env" <<{end}
HOME=$root/work
PATH=$root/venv/env/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
VIRTUAL_ENV=$root/venv/env
SLIPWAY_WORKDIR=$root/work
SLIPWAY_PRIVATE=$root/run/private.json
SLIPWAY_JOB_FILE=$root/run/job.json
{end}
cat > "$root/enter" <<'{end}'
#!/bin/sh
root=${{SLIPWAY_MACHINE:-/var/lib/slipway}}
words=$#
while IFS= read -r line; do set -- "$@" "$line"; done < "$root/env"
while [ $words -gt 0 ]; do
  word=$1
  shift
  set -- "$@" "$word"
  words=$((words - 1))
done
exec unshare --mount --pid --fork --kill-child --mount-proc sh -c '
  mount -t tmpfs -o size=64k,mode=755 none /home || exit 1
  cd "$0" && exec setpriv --reuid={user} --regid={user} --clear-groups --no-new-privs --inh-caps=-all \\
    --bounding-set=-all env -i "$@"' "$root/venv" "$@"
{end}
chmod 700 "$root/enter"
"""

# by root, with what root installed; nothing of the run can write there
RENEWING: Final = """while sleep {look}; do
  (cd "$root/venv" && while IFS= read -r line; do export "$line"; done < "$root/env" &&
    HOME=/root SLIPWAY_PRIVATE="$root/access/private.json" python -m launcher.runtime.renewing)
done &
"""


def digest_of(job: ResolvedJob, role: str) -> str:
    """The sha256 (hex) of the role's archive; empty where it runs in an image."""
    image = job.roles[role].image
    return "" if image.digest else image.environment.partition("sha256:")[2]


def user_of(job: ResolvedJob) -> int:
    return SHARED if job.store.startswith("file://") else OWN


def software(python: str, digest: str, end: str, archive: str) -> str:
    return _SOFTWARE.format(
        python=python,
        digest=digest,
        short=digest[:12],
        end=end,
        archive=archive,
        lock=LOCK,
        source=SOURCE,
        uv_lock=UV_LOCK,
    ).rstrip()
