"""Creates objects in a cluster, each exactly once.

When an object of that name exists (409), it is compared with what its jobs render to. The same fingerprint and the same
fields: the object is adopted, which also handles a create whose response was lost. Anything else: Conflict; nothing is
overwritten.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

import msgspec

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ONLY_METADATA, Api, ApiAnswer, ApiRefused
from launcher.backends.kubernetes.check.carried import refuse_changed
from launcher.backends.kubernetes.connection import version_of
from launcher.backends.kubernetes.objects import JOB_SET, OWNED, POD_GROUP, Metadata, ObjectDocument, RenderedFile, bare
from launcher.errors import BadInput, Conflict, SlipwayError, Unreachable

PARALLEL: Final = 32  # more than cores: a create mostly waits for etcd
WRITE: Final = {"fieldManager": names.APP, "fieldValidation": "Strict"}
CLAIMS: Final = "/apis/resource.k8s.io"  # the group of claims of devices
DRY: Final = {**WRITE, "dryRun": "All"}
TRIES: Final = 5  # of a create whose object exists at the create and is gone at the read


@dataclass
class Creator:
    """Creates objects in one cluster; remembers which shapes were dry-run."""

    api: Api
    tried: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def try_out(self, documents: Iterable[ObjectDocument]) -> None:
        """Checks the first document of each shape offline, then by a strict dry run on the server.

        Raises BadInput with all errors. The server accepts a Job whose pods Pod Security will refuse, with only a
        warning, and its pods never start: that warning counts as an error.
        """
        firsts: dict[str, ObjectDocument] = {}
        wrong: list[str] = []
        for document in documents:
            shape = document.shape
            if shape not in self.tried and shape not in firsts:
                firsts[shape] = document
        if firsts:
            version = version_of(self.api)
            self.note(*filter(None, [version.note]))
            wrong += [line for document in firsts.values() for line in offline(document, version.schemas, self.api)]
        if wrong:
            raise BadInput("\n".join(dict.fromkeys(wrong)))
        for shape, document in firsts.items():
            wrong += self._try(document)
            self.tried.add(shape)
        if wrong:
            raise BadInput("\n".join(dict.fromkeys(wrong)))

    def _try(self, document: ObjectDocument) -> list[str]:
        about = f"{document.kind.name} {document.metadata.name}"
        try:
            answer = self._post(document, DRY)
        except ApiRefused as error:
            if error.status == 409:  # it exists: creating it will compare fingerprints
                return []
            refused = explain(error, document, self.api)
            if not isinstance(refused, BadInput):
                raise refused from None
            return [str(refused)]
        wrong = [f"{about}: its pods would be refused: {text}" for text in answer.warnings if "PodSecurity" in text]
        if not wrong:
            self.note(*(f"{about}: {text}" for text in answer.warnings))
        return wrong

    def note(self, *texts: str) -> None:
        """Prints a note, once; nothing is refused."""
        with self._lock:
            for text in texts:
                if text not in self.notes:
                    self.notes.append(text)
                    print(f"note: {text}", file=sys.stderr)

    def create_all(self, files: Iterable[RenderedFile]) -> dict[str, Metadata]:
        """Creates every file's objects: first what a carrier needs, then the carrier. Returns file name
        -> the carrier's metadata in the cluster."""
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="create") as threads:
            futures = {each.name: threads.submit(self.create_file, each) for each in files}
            done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
            if any(future.exception() is not None for future in done):
                threads.shutdown(cancel_futures=True)
            # raises the first error in the order of the files, so that the same mistake gives the same message
            failed = [each for each in futures.values() if not each.cancelled() and each.exception() is not None]
            for future in failed:
                future.result()
            return {name: future.result() for name, future in futures.items()}

    def create_file(self, file: RenderedFile) -> Metadata:
        created = {each.path: self.create(each) for each in file.before}
        carrier = self.create(file.carrier)
        for each in file.before:
            if each.kind in OWNED and file.carrier.metadata.name:
                self._give(each, created[each.path], file.carrier, carrier)
        return carrier

    def create(self, document: ObjectDocument) -> Metadata:
        for _ in range(TRIES):
            try:
                return bare(self._post(document, WRITE).body).metadata
            except ApiRefused as error:
                if error.status != 409 or error.reason != "AlreadyExists":
                    raise explain(error, document, self.api) from None
            answer = self.api.get(document.path)
            if answer is not None and document.kind in OWNED:
                return _same_content(document, answer)
            if answer is not None:
                metadata = _ours(document, bare(answer.body).metadata)
                refuse_changed(self.api, answer.json())
                return metadata
        raise Unreachable(f"{document.kind.name} {document.metadata.name} comes and goes in {self.api.where}")

    def _post(self, document: ObjectDocument, query: dict[str, str]) -> ApiAnswer:
        collection = document.kind.path(document.metadata.namespace)
        return self.api.request("POST", collection, body=document.body, accept=ONLY_METADATA, query=query)

    def _give(self, document: ObjectDocument, there: Metadata, carrier: ObjectDocument, owner: Metadata) -> None:
        """Makes the carrier the owner of what was made for it, so that both are deleted together. Only now: the
        carrier's uid exists only once it is created. Without the right to patch, `cancel` deletes it.

        What was adopted may have belonged to a carrier of this name that was just deleted. Until it has the new owner,
        the garbage collector may take it at any moment: then it is made again."""
        reference = {
            "apiVersion": carrier.value.get("apiVersion"),
            "kind": carrier.kind.name,
            "name": owner.name,
            "uid": owner.uid,
        }
        for _ in range(TRIES):
            body = msgspec.json.encode({"metadata": {"uid": there.uid, "ownerReferences": [reference]}})
            try:
                self.api.request(
                    "PATCH", document.path, body=body, content="application/merge-patch+json", accept=ONLY_METADATA
                )
                return
            except ApiRefused as error:
                if error.status in (403, 422):
                    return
                if error.status not in (404, 409):
                    raise
            there = self.create(document)
        raise Unreachable(f"{document.kind.name} {document.metadata.name} comes and goes in {self.api.where}")


def offline(document: ObjectDocument, version: str, api: Api) -> list[str]:
    """Errors in a document by the schemas of that version. Pod Security is left to the cluster, whose namespaces set
    it. Claims of devices are taken from every cluster that serves them, also where its version does not by default:
    otherwise the server would remove them without a word, and ranks would start without their GPUs."""
    from launcher.backends.kubernetes.check.policies import NO_EFFECT
    from launcher.backends.kubernetes.check.rules.workloads import DEVICES
    from launcher.backends.kubernetes.check.validate import CheckPolicy, findings

    about = f"{document.kind.name} {document.metadata.name}"
    found = findings(document.value, version, CheckPolicy(level="privileged"))
    removed = [item for item in found if item.policy == NO_EFFECT and DEVICES.intersection(item.route)]
    if removed and api.get(CLAIMS) is not None:
        found = [item for item in found if item not in removed]
    return [
        f"{about}: {'.'.join(map(str, item.route))}: {item.what}{f'; allowed: {item.allowed}' if item.allowed else ''}"
        for item in found
    ]


def _ours(document: ObjectDocument, there: Metadata) -> Metadata:
    about = f"{document.kind.name} {there.name} in namespace {there.namespace}"
    if there.fingerprint != document.metadata.fingerprint or not there.fingerprint:
        whose = "another job" if there.fingerprint else "not ours"
        raise Conflict(f"{about} is {whose}; give this job another name")
    if there.deletion:
        raise Conflict(f"{about} is being deleted since {there.deletion}; submit again when it is gone")
    return there


def _same_content(document: ObjectDocument, answer: ApiAnswer) -> Metadata:
    """The metadata of an existing ConfigMap or PodGroup that says the same. Raises Conflict."""
    value = answer.json()
    metadata = bare(answer.body).metadata
    about = f"{document.kind.name} {metadata.name}"
    same = all((value.get(key) or {}) == (document.value.get(key) or {}) for key in ("data", "binaryData", "spec"))
    if not same:
        raise Conflict(f"{about} in namespace {metadata.namespace} is there and holds something else")
    if metadata.deletion:
        raise Conflict(f"{about} is being deleted; submit again when it is gone")
    return metadata


def explain(error: ApiRefused, document: ObjectDocument, api: Api) -> SlipwayError:
    """A refusal as a message for the user; BadInput where the job or its `kubernetes` block must change."""
    about = f"{document.kind.name} {document.metadata.name}"
    space = document.metadata.namespace
    if error.status == 404 and "namespaces" in error.message:
        return BadInput(f"namespace {space} is not in cluster {api.where}")
    if error.status == 404 and document.kind is JOB_SET:
        return BadInput(
            f"{about}: cluster {api.where} has no JobSet; several ranks, roles or stages need it: "
            "https://jobset.sigs.k8s.io/docs/installation/"
        )
    if error.status == 404 and document.kind is POD_GROUP:
        return BadInput(
            f"{about}: cluster {api.where} has no PodGroups; `kubernetes.gang` needs the coscheduling plugin: "
            "https://github.com/kubernetes-sigs/scheduler-plugins"
        )
    if error.status == 403 and "exceeded quota" in error.message:
        return Unreachable(f"{about}: {error.message}; submit again when there is room: nothing is submitted twice")
    if error.status == 403 and ("denied the request" in error.message or "PodSecurity" in error.message):
        return BadInput(f"{about}: {error.message}")
    if error.status == 403 and "being terminated" in error.message:
        return BadInput(f"{about}: namespace {space} is being deleted")
    if error.status == 403:
        return Unreachable(f"{about}: {error.message}")
    if error.status in (400, 413, 415, 422):
        return BadInput(f"{about} is refused by cluster {api.where}: {error.message}")
    return error
