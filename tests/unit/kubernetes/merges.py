"""Strategic merges as kubectl does them: `kubectl patch --local --type strategic` over a PodTemplate, kubectl 1.34.4.

`python -m tests.unit.kubernetes.merges KUBECTL` asks a kubectl again and writes merges.json; a test of the mark
`cluster` compares the file with the kubectl that the tests build.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("merges.json")
BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}, "annotations": {"n": "1"}},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "one"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"}],
        "containers": [
            {
                "name": "main",
                "image": "i",
                "command": ["a", "b"],
                "env": [{"name": name, "value": name} for name in "ABCD"],
                "ports": [{"containerPort": 80, "name": "web"}],
                "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "tmp", "mountPath": "/tmp"}],
                "resources": {"requests": {"cpu": "1"}},
                "securityContext": {"capabilities": {"drop": ["ALL"]}},
            }
        ],
        "volumes": [{"name": "work", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
    },
}


def _main(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **fields}]}}


def _named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": "new"} for name in names]


PATCHES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "labels": {"metadata": {"labels": {"b": "2"}, "annotations": {"n": "2"}}},
    "null removes": {"metadata": {"annotations": None, "labels": {"missing": None}}, "spec": {"hostAliases": None}},
    "a field of a mapping": {"spec": {"securityContext": {"runAsUser": None, "supplementalGroups": [5]}}},
    "a list that is replaced": {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}},
    "nulls in a list that is replaced": {"spec": {"tolerations": [{"key": "b", "value": None}]}},
    "a command is replaced": _main(command=["c"]),
    "capabilities": _main(securityContext={"capabilities": {"add": ["X"]}}),
    "init container": {
        "spec": {"initContainers": [{"name": "s", "workingDir": None, "env": [{"name": "Z", "value": None}]}]}
    },
    "two containers": {"spec": {"containers": [{"name": "beside", "image": "j"}]}},
    "new variable": _main(env=_named("X")),
    "last variable": _main(env=_named("D")),
    "first variable": _main(env=_named("A")),
    "variables in another order": _main(env=_named("D", "B")),
    "new before old": _main(env=_named("X", "B", "Y")),
    "new after old": _main(env=_named("C", "X", "A")),
    "mounts": _main(volumeMounts=[{"name": "d", "mountPath": "/d"}, {"name": "x", "mountPath": "/tmp"}]),
    "ports": _main(ports=[{"containerPort": 81}, {"containerPort": 80, "protocol": "TCP"}]),
    "devices": _main(volumeDevices=[{"name": "work", "devicePath": "/dev/x"}]),
    "volumes": {"spec": {"volumes": [{"name": "d", "emptyDir": {}}, {"name": "work", "emptyDir": {"medium": "x"}}]}},
    "a volume of another kind": {"spec": {"volumes": [{"name": "work", "emptyDir": None, "ephemeral": {}}]}},
    "spread": {
        "spec": {
            "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 2}, {"topologyKey": "host", "maxSkew": 3}]
        }
    },
    "secrets, claims, gates, aliases": {
        "spec": {
            "imagePullSecrets": [{"name": "two"}],
            "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
            "schedulingGates": [{"name": "g"}],
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["h"]}],
        }
    },
}


def asked(kubectl: Path, patch: dict[str, Any]) -> dict[str, Any]:
    """What kubectl makes of BASE and a patch."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": BASE}, file)
        file.flush()
        command = [str(kubectl), "patch", "--local", "-f", file.name, "--type", "strategic", "-o", "json", "-p"]
        done = subprocess.run([*command, json.dumps({"template": patch})], capture_output=True, text=True, check=True)
    template: dict[str, Any] = _as_served(json.loads(done.stdout)["template"])
    return template


def _as_served(value: Any) -> Any:
    """Without nulls, which servers leave out; kubectl keeps those in a list that it replaces."""
    if isinstance(value, dict):
        return {key: _as_served(item) for key, item in value.items() if item is not None}
    return [_as_served(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    results = {name: asked(Path(sys.argv[1]), patch) for name, patch in PATCHES.items()}
    FILE.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
