"""The threads of each process of a command: one rule for all backends and the runtime."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from launcher.backends.azureml.render import render as azureml
from launcher.backends.docker.container import ContainerSettings
from launcher.backends.docker.container import environment as docker
from launcher.backends.kubernetes.render.manifests import objects
from launcher.backends.lambda_labs.script import script
from launcher.backends.local.environment import runtime_environment
from launcher.runtime.folders import Folders
from launcher.runtime.member import command as runtime
from launcher.runtime.settings import MemberAddress
from launcher.spec.model import ResolvedJob, Resources, Role
from launcher.spec.resolve.threads import threads
from tests.unit.azureml.jobs import given as on_azureml
from tests.unit.kubernetes.support import IMAGE
from tests.unit.kubernetes.support import job as on_kubernetes
from tests.unit.lambda_labs.test_render import given as on_lambda

PLACE = ContainerSettings("0:0", Path("/w"), Path("/p"))
RUN = "x-000000000000"
TORCHRUN = ("torchrun", "--standalone", "-m", "training.sft")
TWO = ("torchrun", "--nproc-per-node", "2", "train.py")
# command, CPUs, GPUs, ranks, the job's env -> threads of a process
TABLE = [
    (("python", "train.py"), 6.0, 0, 1, {}, 6),
    (("python", "train.py"), 6.0, 1, 1, {}, 6),
    (("python", "train.py"), 96.0, 8, 1, {}, 12),  # it may start a process for each GPU: nothing says
    (("python", "train.py"), 0.5, 0, 1, {}, 1),
    (("python", "train.py"), 4.0, 8, 1, {}, 1),
    (TORCHRUN, 6.0, 0, 1, {}, 6),
    (TORCHRUN, 6.0, 1, 1, {}, 6),
    (TORCHRUN, 96.0, 8, 1, {}, 12),
    (TORCHRUN, 90.0, 8, 2, {}, 11),
    (TORCHRUN, 6.0, 0, 2, {}, 6),  # with several ranks torchrun starts one process on each
    (TWO, 2.0, 0, 1, {}, 1),
    (TWO, 96.0, 8, 1, {}, 48),
    (("torchrun", "--nproc_per_node=4", "train.py"), 8.0, 0, 1, {}, 2),
    (("python", "-m", "torch.distributed.run", "--nproc-per-node=3", "train.py"), 7.0, 0, 1, {}, 2),
    (("torchrun", "--nproc-per-node", "gpu", "train.py"), 64.0, 4, 1, {}, 16),
    (("torchrun", "--nproc-per-node", "auto", "train.py"), 64.0, 4, 1, {}, 16),
    (("torchrun", "--nproc-per-node", "auto", "train.py"), 64.0, 0, 1, {}, 1),
    (("torchrun", "--nproc-per-node", "cpu", "train.py"), 64.0, 4, 1, {}, 1),
    (("torchrun", "--nproc-per-node", "0", "train.py"), 6.0, 0, 1, {}, 6),  # torchrun refuses it
    (("bash", "-c", "cd x && exec torchrun --nproc-per-node=2 train.py"), 8.0, 0, 1, {}, 4),
    (("bash", "-c", "torchrun --nproc-per-node $N train.py"), 32.0, 4, 1, {}, 8),
    (TORCHRUN, 8.0, 0, 1, {"PET_NPROC_PER_NODE": "2"}, 4),
    (TWO, 8.0, 0, 1, {"PET_NPROC_PER_NODE": "8"}, 4),  # torchrun's argument counts
    (("accelerate", "launch", "train.py"), 96.0, 8, 1, {}, 12),
    (("accelerate", "launch", "--num_processes", "4", "train.py"), 8.0, 0, 1, {}, 2),
    (("accelerate", "launch", "--num_processes=16", "train.py"), 96.0, 8, 2, {}, 12),
    (("./train.sh",), 96.0, 8, 1, {}, 12),
    (("./train.sh",), 6.0, 0, 1, {}, 6),
]


def of(made: ResolvedJob, command: tuple[str, ...], cpus: float, gpus: int, ranks: int, env: dict[str, str]) -> Role:
    need = Resources(cpus=cpus, memory=1 << 30, gpus=gpus, gpu="H100" if gpus else None)
    image = made.roles["main"].image
    return Role(command, image=image if image.digest else IMAGE, resources=need, env=env, replicas=ranks, leader=True)


@pytest.mark.parametrize(("command", "cpus", "gpus", "ranks", "env", "count"), TABLE)
def test_every_backend_and_the_runtime_give_the_same(
    command: tuple[str, ...], cpus: float, gpus: int, ranks: int, env: dict[str, str], count: int, tmp_path: Path
) -> None:
    def made(given: ResolvedJob) -> ResolvedJob:
        return msgspec.structs.replace(given, roles={"main": of(given, command, cpus, gpus, ranks, env)})

    kubernetes = made(on_kubernetes())
    assert threads(kubernetes.roles["main"]) == count
    text = msgspec.json.encode(objects([kubernetes])[0].main).decode()
    assert f'{{"name":"OMP_NUM_THREADS","value":"{count}"}}' in text
    (azure,) = azureml([made(on_azureml("x"))]).documents.values()
    assert re.findall(r"OMP_NUM_THREADS: \W?(\d+)", azure) == [str(count)]
    user_data = script(made(on_lambda("x")), RUN, "main", 0)
    assert re.findall(r"^OMP_NUM_THREADS=(\d+)$", user_data, re.MULTILINE) == [str(count)]
    local = made(on_kubernetes())
    assert docker(local, RUN, "main-0", 1, "queue", PLACE)["OMP_NUM_THREADS"] == str(count)
    begun = runtime_environment(
        local, RUN, "main-0", state_id="id", site={}, private={}, secrets={}, gpus=(), work=tmp_path, python="python"
    )
    assert begun["OMP_NUM_THREADS"] == str(count)
    assert of_the_command(local, begun, "process")["OMP_NUM_THREADS"] == str(count)
    # an object of a launcher of 28 November gives the CPUs of the whole rank
    before = {"OMP_NUM_THREADS": str(max(1, int(cpus)))}
    assert of_the_command(kubernetes, before, "job")["OMP_NUM_THREADS"] == str(count)
    assert of_the_command(kubernetes, {}, "container")["OMP_NUM_THREADS"] == str(count)


def of_the_command(made: ResolvedJob, environ: dict[str, str], kind: str) -> dict[str, str]:
    where = {"SLIPWAY_STORE": "file:///s", "SLIPWAY_RUN": RUN, "SLIPWAY_PLACEMENT": f'{{"kind":"{kind}","where":"w"}}'}
    address, folders = MemberAddress.read(where), Folders(Path("/w"), False)
    peers = runtime.Peers()
    own = runtime.variables(made, address, folders, 1, None, peers)
    return runtime.environment(made, address, folders, own, peers, 1, environ)


@pytest.mark.parametrize("kind", ["process", "job", "container", "machine"])
def test_a_users_own_number_wins(kind: str, tmp_path: Path) -> None:
    made = on_kubernetes()
    role = of(made, TWO, 8.0, 0, 1, {})
    plain = msgspec.structs.replace(made, roles={"main": role})
    named = msgspec.structs.replace(made, roles={"main": msgspec.structs.replace(role, env={"OMP_NUM_THREADS": "3"})})
    assert of_the_command(named, {"OMP_NUM_THREADS": "4"}, kind)["OMP_NUM_THREADS"] == "3"
    # of `kubernetes.patch`, of the shell of a local run
    assert of_the_command(plain, {"OMP_NUM_THREADS": "7"}, kind)["OMP_NUM_THREADS"] == "7"
    shell = {"OMP_NUM_THREADS": "8"}
    begun = runtime_environment(
        plain, RUN, "main-0", state_id="id", site=shell, private={}, secrets={}, gpus=(), work=tmp_path, python="python"
    )
    assert of_the_command(plain, begun, "process")["OMP_NUM_THREADS"] == "8"


def test_the_number_of_processes_may_come_from_the_image(tmp_path: Path) -> None:
    made = on_kubernetes()
    plain = msgspec.structs.replace(made, roles={"main": of(made, TORCHRUN, 8.0, 0, 1, {})})
    begun = {"OMP_NUM_THREADS": "8", "PET_NPROC_PER_NODE": "2"}
    assert of_the_command(plain, begun, "container")["OMP_NUM_THREADS"] == "4"
