"""The names that the Kubernetes backend puts on its objects. Rendering, submitting, watching and linting share them.
Constants only, so that every module may import it."""

from __future__ import annotations

from typing import Final

# labels of the object and, where noted, of its pods
APP_NAME: Final = "app.kubernetes.io/name"  # APP, on every object of ours
APP_MANAGED: Final = "app.kubernetes.io/managed-by"  # APP
APP_COMPONENT: Final = "app.kubernetes.io/component"  # pods: the role
APP_INSTANCE: Final = "app.kubernetes.io/instance"  # the run's id; for a pipeline or an array, on the object, its name
APP: Final = "slipway"
RUN: Final = "slipway.dev/run"  # the run's id: on pods, and on objects of a single run. Not on pods of an array
ROLE: Final = "slipway.dev/role"  # on pods
PIPELINE: Final = "slipway.dev/pipeline"  # the object's name: on JobSets of several runs, and their pods
ARRAY: Final = "slipway.dev/array"  # the object's name: on Indexed Jobs of several runs, and their pods
LABEL_PREFIX: Final = "slipway.dev/label-"  # the user's labels
QUEUE: Final = "kueue.x-k8s.io/queue-name"  # Kueue's LocalQueue, on the object
QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"  # Kueue's WorkloadPriorityClass, on the object
PROVISIONING: Final = "provreq.kueue.x-k8s.io/"  # parameters of Kueue's ProvisioningRequest: annotations of the object
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"  # in `managedBy`: another cluster's controller has the Job or JobSet
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"  # annotation of a Job: Kueue may start fewer pods at once
POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"  # of pods: their PodGroup, for the coscheduling plugin
SELECTOR: Final = f"{APP_MANAGED}={APP}"  # selects all objects of ours

# annotations that tools which apply files leave on the object: kubectl and Argo CD, and Argo CD's tracking
APPLIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration", "argocd.argoproj.io/tracking-id"})
# annotations of the object
FINGERPRINT: Final = "slipway.dev/fingerprint"  # run hash; for several runs, sha256 over their sorted run hashes
RUNS: Final = "slipway.dev/runs"  # JSON: run id -> run hash
RENDERER: Final = "slipway.dev/renderer"  # RENDERER_VERSION; never compared
# Raise it when the same job renders to another object, and keep what the version before wrote (PodContext.former):
# objects in clusters and in Git stay ours
RENDERER_VERSION: Final = "0.1.0-2"
FORMER: Final = "0.1.0"  # until 28 November 2026
STORE: Final = "slipway.dev/store"

# objects that Kubernetes' controller manager puts into every namespace
ROOT_CA: Final = ("kube-root-ca.crt", "ca.crt")  # ConfigMap and its key: they identify the cluster

# labels that controllers put on pods; the downward API gives them to the runtime
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"  # of the Job
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
RESTART: Final = "jobset.sigs.k8s.io/restart-attempt"

JOB_API: Final = "batch/v1"
JOBSET_API: Final = "jobset.x-k8s.io/v1alpha2"
POD_GROUP_API: Final = "scheduling.x-k8s.io/v1alpha1"
OWNED_KINDS: Final = ("ConfigMap", "PodGroup")  # made beside a carrier, which they belong to
CONTAINER: Final = "main"  # the one container of every pod
ENTRYPOINT: Final = ("python", "-m", "launcher.runtime")
WORK: Final = "/work"
TMP: Final = "/tmp"
SHM: Final = "/dev/shm"
JOBS: Final = "/etc/slipway"  # jobs too big for the environments: <run id>.json, or <index>.json in an array
JOBS_VOLUME: Final = "jobs"  # the volume with the jobs' files
INLINE: Final = (
    96 * 1024
)  # bytes of job.json in an object's environment variables; the kernel allows 128 KiB for one variable
REPEATED: Final = 1 << 20  # bytes of job.json in the environments of all pods together; more are one ConfigMap
NAME_LENGTH: Final = 63  # of a pod's name: it is a DNS label
DEFAULT_PLATFORM: Final = "plain"
