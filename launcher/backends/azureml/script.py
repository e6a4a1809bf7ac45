"""The command of a job in Azure ML, run by bash on every node in the image. Pure text.

Azure ML gives a node's rank in NODE_RANK and nothing else that the runtime needs. It does not start a command again
that has ended, so a loop does, as the runtime's exit codes ask. An image without the runtime would loop, and be billed,
until the job's limit: a program that cannot be started ends the node, and so do many quick ends in a row.
"""

from __future__ import annotations

import shlex
from typing import Final

from launcher.backends.azureml.names import KIND, where
from launcher.backends.docker.container import ENTRYPOINT
from launcher.reasons import EXIT_DONE, EXIT_NEVER
from launcher.spec.model import ResolvedJob

# Azure ML keeps what a command writes into ./outputs and ./logs a second time: the runtime works beside them
WORK: Final = "slipway"
# of Azure ML's launcher: the command's own torchrun must not take them for its own
OTHERS: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
SOON, OFTEN = 30, 20  # seconds, and how many ends within them in a row end the node: about 20 minutes

_TEXT: Final = """\
export SLIPWAY_RANK="{rank}"
export SLIPWAY_WORKDIR="$PWD/{work}" HOME="$PWD/{work}"
mkdir -p "$SLIPWAY_WORKDIR"
address=$(hostname -I 2>/dev/null | cut -d ' ' -f 1)
node=$(cat /proc/sys/kernel/random/uuid)
export SLIPWAY_PLACEMENT="$(printf '{{"kind":"{kind}","where":"%s","host":"%s","container":"%s"}}' \\
  {where} "$address" "$node")"
unset {others}
ending=
child=
trap 'ending=1; [ -z "$child" ] || kill -TERM "$child"' TERM INT
pause=5
quick=0
while :; do
  began=$SECONDS
  child=
  {entrypoint} &
  child=$!
  [ -z "$ending" ] || kill -TERM "$child"
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    code=$?
  done
  case $code in {done}|{never}|126|127) exit "$code" ;; esac
  quick=$((SECONDS - began < {soon} ? quick + 1 : 0))
  [ "$quick" -lt {often} ] || exit "$code"
  [ -z "$ending" ] || exit "$code"
  echo "[slipway] the runtime ended with $code; again in $pause s"
  sleep "$pause" &
  child=$!
  wait "$child"
  [ -z "$ending" ] || exit "$code"
  [ "$pause" -ge 60 ] || pause=$((pause * 2))
done
"""


def command(job: ResolvedJob, run: str, rank: int | None = None) -> str:
    """The same for all nodes and roles of a run; with `rank`, of the one node of a rank."""
    return _TEXT.format(
        rank="${NODE_RANK:-0}" if rank is None else rank,
        work=WORK,
        kind=KIND,
        where=shlex.quote(where(job.options, run)),
        others=" ".join(OTHERS),
        entrypoint=shlex.join(ENTRYPOINT),
        done=EXIT_DONE,
        never=EXIT_NEVER,
        soon=SOON,
        often=OFTEN,
    )
