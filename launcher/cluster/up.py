"""Creates the cluster, step by step. Every step checks the present state and does only what is missing, so the next run
completes an interrupted one. A step that fails raises its error and ends the run."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from launcher.cluster import plan, readiness, tools
from launcher.cluster.additions import ADDITIONS, install, source
from launcher.cluster.files import CONFIG, STORE_PROGRAM, ClusterFiles, held, store_program, tree, user_profile, write
from launcher.decoding import decode
from launcher.errors import BadInput, NotFound, SlipwayError, Unreachable

PROGRAMS: Final = ("docker", "kind", "kubectl")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
CTR: Final = ("ctr", "-n", "k8s.io")
TRIES, PAUSE = 6, 5.0  # a webhook answers only some seconds after its Deployment is ready
READY: Final = 300.0  # seconds for a Deployment to become ready
STARTS: Final = 24  # a control plane that was stopped needs up to two minutes to start

Tell = Callable[[str], None]


def up(
    place: ClusterFiles,
    cwd: Path,
    environ: Mapping[str, str],
    *,
    images: Sequence[str],
    additions: Sequence[str],
    tell: Tell,
    node_image: str = "",
    manifests: Path | None = None,
) -> str:
    """Creates or completes the cluster; returns the next steps for the user. Raises BadInput for missing programs,
    images and manifests before it changes anything, Conflict while another process makes it, and Unreachable.

    Whatever an earlier run installed stays, even if this one does not ask for it. What needs a network comes last: if
    it fails, the cluster works without it. `node_image`: of kind's node; empty: kind's own. `manifests`: a folder with
    the additions' manifests, for a machine without a network.
    """
    root = tree(cwd)
    with held(place):
        wanted = checked(root, images)
        sources = {name: source(name, manifests) for name in additions}
        create(place, root, tell, node_image)
        before = made(place)
        contents = plan.ClusterContents(
            {**before.images, **load(place, root, wanted, tell)}, before.queues, before.jobset
        )
        keep(place, contents)
        apply(place, root, contents.images, contents.queues, tell)
        keys = store_keys(place, tell)
        wait(place, plan.STORE_NAMESPACE, "store", tell)
        write(place.environment, plan.environment(place, keys), private=True)
        ours, text = write_profile(place, environ, contents)
        for name in additions_of(before):
            if name not in additions:  # after a restart of the node it may not be up again yet
                wait(place, ADDITIONS[name].namespace, ADDITIONS[name].deployment, tell)
        for name in additions:
            try:
                added = ADDITIONS[name]
                tell(f"{name}: {added.version}")
                install(place, sources[name])
                wait(place, added.namespace, added.deployment, tell)
            except SlipwayError as error:
                again = f"launcher cluster up --name {place.name} " + f"--{name}"
                raise Unreachable(
                    f"{error}\nthe cluster {place.name} is up without {name}; `{again}` adds it"
                ) from None
            queues, jobset = name == "kueue" or contents.queues, name == "jobset" or contents.jobset
            contents = plan.ClusterContents(contents.images, queues, jobset)
            keep(place, contents)
        if contents.queues and not before.queues:
            apply(place, root, contents.images, contents.queues, tell)
            ours, text = write_profile(place, environ, contents)
        return plan.next_steps(place, str(user_profile(environ)), ours, text, contents, room(place))


def additions_of(contents: plan.ClusterContents) -> list[str]:
    return [name for name, there in (("jobset", contents.jobset), ("kueue", contents.queues)) if there]


def keep(place: ClusterFiles, contents: plan.ClusterContents) -> None:
    write(place.made, msgspec.json.encode(contents).decode())


def write_profile(place: ClusterFiles, environ: Mapping[str, str], contents: plan.ClusterContents) -> tuple[bool, str]:
    """Writes the user's profile unless it is the user's own; returns whether it did, and the text."""
    text = plan.profile(place, contents.images, contents.queues)
    path = user_profile(environ)
    ours = not path.exists() or path.read_text(encoding="utf-8").startswith(plan.WRITTEN)
    if ours:
        write(path, text)
    return ours, text


def room(place: ClusterFiles) -> plan.Room | None:
    """None where it cannot be asked."""
    answer = tools.ask([*place.kubectl, "get", "nodes,pods", "-A", "-o", "json"], minutes=1)
    if answer.code:
        return None
    items = json.loads(answer.out)["items"]
    nodes = [item for item in items if item["kind"] == "Node"]
    return plan.room_of(nodes, [item for item in items if item["kind"] == "Pod"])


def made(place: ClusterFiles) -> plan.ClusterContents:
    try:
        return decode(place.made.read_bytes(), plan.ClusterContents)
    except (FileNotFoundError, msgspec.MsgspecError):
        return plan.ClusterContents()


def checked(root: Path, images: Sequence[str]) -> dict[str, str]:
    """Image name -> its tag in docker. Raises BadInput that lists everything that is missing."""
    tools.require(PROGRAMS)
    docker_version = tools.ask(["docker", "version", "--format", "{{.Server.Version}}"], minutes=1)
    if docker_version.code:
        raise Unreachable(f"docker does not answer: {docker_version.words}")
    missing = []
    if store_program(root) is None:
        missing.append(
            f"{STORE_PROGRAM.name}, the local store's program: `make tools` in a clone builds it (needs Go); "
            "one on the PATH does, too"
        )
    tags: dict[str, str] = {}
    for image in images:
        name, tag = tagged(root, image)
        if tools.ask(["docker", "image", "inspect", "--format", "{{.Id}}", tag], minutes=1).code:
            build = f"`launcher images build {name}`" if ":" not in image else f"`docker pull {image}`"
            missing.append(f"the image {tag}: {build} makes it")
        tags[name] = tag
    if missing:
        raise BadInput("missing:\n" + "\n".join(f"  {one}" for one in missing))
    return tags


def tagged(root: Path, image: str) -> tuple[str, str]:
    """(name, tag) of an image of the catalogue or of any reference. Raises BadInput."""
    if image.startswith("sha256:") or "@" in image:
        raise BadInput(
            f"--image {image}: a job names images by repository, and this has none in the node; allowed: a name of "
            "`launcher images list`, or NAME:TAG (`docker tag` gives one)"
        )
    if ":" in image or "/" in image:
        reference = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
        return reference.rpartition("/")[2].partition(":")[0], reference
    from launcher.spec.images.definition import select

    try:
        (definition,) = select(root, [image])
    except SlipwayError as error:
        raise BadInput(f"--image {image}: {error}") from None
    return image, f"{image}:{definition.version()}"


def clusters() -> list[str]:
    return tools.run(["kind", "get", "clusters"], minutes=2).split()


def nodes(place: ClusterFiles) -> list[str]:
    return tools.run(["kind", "get", "nodes", "--name", place.name], minutes=2).split()


def delete(place: ClusterFiles) -> None:
    """Deletes the cluster. Without `--kubeconfig`, kind would rewrite the user's own kubeconfig."""
    tools.run(["kind", "delete", "cluster", "--name", place.name, "--kubeconfig", str(place.kubeconfig)])


def create(place: ClusterFiles, root: Path, tell: Tell, node_image: str = "") -> None:
    """Creates or starts the cluster and waits until its control plane answers and its node is ready."""
    there = place.name in clusters()
    if there and place.creating.exists():
        tell("cluster: an earlier `up` did not complete it; creating it again")
        delete(place)
        there = False
    tries = 1
    if there:
        tries = start(place, tell)
    else:
        if taken(plan.PORT):
            raise BadInput(
                f"127.0.0.1:{plan.PORT}, where the cluster's store is to be reached, is taken: by another cluster "
                "(`kind get clusters`; one can be up at a time) or another program"
            )
        tell(f"cluster: creating {place.name} (a minute or two)")
        write(place.creating, "")
        place.made.unlink(missing_ok=True)
        options = ["--config", str(root / CONFIG), "--kubeconfig", str(place.kubeconfig), "--wait", "180s"]
        options += ["--image", node_image] if node_image else []
        # the first time, kind pulls the node's image (a gigabyte)
        tools.run(["kind", "create", "cluster", "--name", place.name, *options], minutes=30)
        place.creating.unlink()
    # needed as well for a cluster that somebody else created, and after Docker restarted it on another port
    tools.run(["kind", "export", "kubeconfig", "--name", place.name, "--kubeconfig", str(place.kubeconfig)])
    for attempt in range(tries):
        ready = tools.ask([*place.kubectl, "get", "--raw", "/readyz"], minutes=1)
        if not ready.code:
            break
        if attempt + 1 < tries:
            time.sleep(PAUSE)
    if ready.code:
        raise Unreachable(
            f"the cluster {place.name} is there and does not answer: {ready.words}\n"
            f"look at `docker ps -a --filter label=io.x-k8s.kind.cluster={place.name}`; "
            f"`launcher cluster down --name {place.name}` removes it with all that its store holds"
        )
    ready = tools.ask([*place.kubectl, "wait", "node", "--all", "--for=condition=Ready", "--timeout=120s"], minutes=3)
    if ready.code:
        why = "; ".join(unready(place)) or ready.words
        raise Unreachable(
            f"the cluster {place.name} answers, and its node is not ready: {why}\n`launcher cluster up` waits again"
        )
    tell(f"cluster: {place.name} answers")


def unready(place: ClusterFiles) -> list[str]:
    """Each node that is not ready, with its reason."""
    answer = tools.ask([*place.kubectl, "get", "nodes", "-o", "json"], minutes=1)
    if answer.code:
        return [answer.words]
    reasons = []
    for node in json.loads(answer.out)["items"]:
        conditions = {each["type"]: each for each in node["status"].get("conditions") or ()}
        ready = conditions.get("Ready") or {}
        if ready.get("status") != "True":
            reasons.append(f"{node['metadata']['name']}: {ready.get('message') or 'its kubelet has not said anything'}")
    return reasons


def start(place: ClusterFiles, tell: Tell) -> int:
    """Starts nodes that were stopped (for example by a reboot). Returns how often to ask the API server before giving
    up."""
    members = nodes(place)
    if not members:
        return 1
    shown = tools.run(["docker", "inspect", "--format", "{{.State.Running}}", *members], minutes=1)
    if "false" not in shown:
        return 1
    tell(f"cluster: starting {', '.join(members)}")
    tools.run(["docker", "start", *members], minutes=2)
    return STARTS


def taken(port: int) -> bool:
    """Whether a program listens on a port of this machine."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def load(place: ClusterFiles, root: Path, images: Mapping[str, str], tell: Tell) -> dict[str, str]:
    """Loads images into the nodes. Returns image name -> reference with the digest that containerd has for it."""
    build_store(root)
    references = {}
    members = nodes(place)
    if not members:
        raise Unreachable(f"the cluster {place.name} has no node; `launcher cluster down --name {place.name}` first")
    for name, tag in {"": plan.STORE_IMAGE, **images}.items():
        # kind compares image ids and loads only what a node lacks
        tools.run(["kind", "load", "docker-image", "--name", place.name, tag], minutes=30)
        if name:
            references[name] = _pin(members, tag)
            tell(f"image: {references[name]}")
    return references


def build_store(root: Path) -> None:
    """Builds the image of the local store. The context is the program alone: its folder holds gigabytes."""
    with tempfile.TemporaryDirectory(prefix="slipway-store-") as context:
        program = store_program(root)
        assert program is not None  # `checked` looked for it
        shutil.copy2(program, Path(context) / STORE_PROGRAM.name)
        file = str(root / "k8s" / "components" / "store" / "Dockerfile")
        tools.run(["docker", "build", "-q", "-t", plan.STORE_IMAGE, "-f", file, context])


def _pin(members: Sequence[str], tag: str) -> str:
    """Gives a loaded image a reference by digest in every node: jobs name digests; a loaded image has only a tag."""
    host, slash, _ = tag.partition("/")
    registry = "." in host or ":" in host or host == "localhost"
    full = tag if slash and registry else f"docker.io/{tag}" if slash else f"docker.io/library/{tag}"
    reference = ""
    for node in members:
        ctr = ["docker", "exec", node, *CTR, "images"]
        digest = DIGEST.search(tools.run([*ctr, "ls", f"name=={full}"], minutes=2))
        if digest is None:
            raise Unreachable(f"{node} does not have {full} although kind has loaded it")
        reference = f"{full.rpartition(':')[0]}@{digest.group()}"
        tools.run([*ctr, "tag", "--force", full, reference], minutes=2)
    return reference


def apply(place: ClusterFiles, root: Path, images: Mapping[str, str], queues: bool, tell: Tell) -> None:
    """Applies the tree with the settings of this cluster."""
    overlays = root / "k8s" / "overlays"
    base = overlays / ("kind-queues" if queues else "kind")
    place.overlay.mkdir(parents=True, exist_ok=True)
    # kustomize accepts no absolute path, and resolves `..` from the real folder, behind symbolic links
    bases = [os.path.relpath(part.resolve(), place.overlay.resolve()) for part in (base, overlays / "kind" / "reaper")]
    write(place.overlay / "kustomization.yaml", plan.overlay(bases, images))
    command = [*place.kubectl, "apply", "--server-side", "--force-conflicts", "-k", str(place.overlay)]
    for attempt in range(TRIES):
        answer = tools.ask(command)
        if not answer.code:
            break
        if attempt + 1 == TRIES or "webhook" not in answer.err:
            raise Unreachable(f"`kubectl apply -k {base}` failed ({answer.code}):\n{answer.words}")
        time.sleep(PAUSE)
    tell(f"tree: {base.relative_to(root)} applied")


def store_keys(place: ClusterFiles, tell: Tell) -> plan.StoreCredentials:
    """The local store's keys: generated once and kept in the cluster."""
    secret = tools.ask(
        [*place.kubectl, "-n", plan.STORE_NAMESPACE, "get", "secret", plan.SECRET, "-o", "json", "--ignore-not-found"]
    )
    if secret.code:
        raise Unreachable(f"the store's keys cannot be read: {secret.words}")
    if secret.out.strip():
        data = json.loads(secret.out)["data"]
        keys = plan.StoreCredentials(
            *(base64.b64decode(data[name]).decode() for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
        )
    else:
        keys = plan.StoreCredentials(secrets.token_hex(10), secrets.token_hex(20))
        tell("store: new keys")
    # every copy each time: an interrupted run may have written only one
    tools.run([*place.kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-"], text=plan.secrets(keys))
    return keys


def wait(place: ClusterFiles, namespace: str, deployment: str, tell: Tell) -> None:
    """Waits until a Deployment is ready. Raises Unreachable: at once when a pod cannot start, with its reason."""
    members = nodes(place)
    end, stuck = time.monotonic() + READY, 0
    while True:
        text = tools.run([*place.kubectl, "-n", namespace, "get", "deployments,pods", "-o", "json"], minutes=1)
        items = json.loads(text)["items"]
        (it,) = [item for item in items if item["kind"] == "Deployment" and item["metadata"]["name"] == deployment]
        pods = [item for item in items if item["kind"] == "Pod"]
        if readiness.available(it, pods, tasks(members)):
            tell(f"ready: {namespace}/{deployment}")
            return
        reason, looks = readiness.why_not_starting(pods)
        stuck = stuck + 1 if looks else 0
        if (looks and stuck >= looks) or time.monotonic() > end:
            raise Unreachable(f"{namespace}/{deployment} is not ready: {reason or 'its pod has not said why'}")
        time.sleep(PAUSE)


def tasks(members: Sequence[str]) -> dict[str, frozenset[str]]:
    """The containers that each of these nodes runs."""
    asked = {node: tools.run(["docker", "exec", node, *CTR, "tasks", "ls"], minutes=1) for node in members}
    return {node: readiness.running_tasks(listing) for node, listing in asked.items()}


def down(place: ClusterFiles, environ: Mapping[str, str], tell: Tell) -> None:
    """Removes the cluster with its store, and this machine's files for it, including a profile that `up` wrote."""
    tools.require(("docker", "kind"))
    with held(place):
        _down(place, environ, tell)


def _down(place: ClusterFiles, environ: Mapping[str, str], tell: Tell) -> None:
    if place.name in clusters():
        delete(place)
        tell(f"cluster: {place.name} is gone, and with it what its store held")
    elif not place.folder.exists():
        raise NotFound(f"there is no cluster {place.name}; `launcher cluster status` names what there is")
    shutil.rmtree(place.folder, ignore_errors=True)
    path = user_profile(environ)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text.startswith(plan.WRITTEN) and f"\n  {place.context}:\n" in text:
        path.unlink()
