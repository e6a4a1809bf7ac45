"""The command line: how verbs are typed and how their answers are printed.

A verb module has `SUMMARY` (one line), `EXAMPLE`, `add(parser)` and `run(args) -> int`.
"""

from __future__ import annotations

import sys
from gc import freeze, set_threshold  # in this package `gc` is the module of a verb

from launcher.cli import process

# What --help lists: the title of a group -> its verbs, each with one line. The lines are kept here so that --help
# imports no verb.
_GROUPS = {
    "first steps": {
        "doctor": "check this machine, the profile, the store and the backends",
        "init": "write a commented starter job",
        "submit": "submit a job, a pipeline or a matrix, exactly once",
        "status": "show runs: phase, step, progress, last checkpoint, reason",
        "logs": "print or follow a run's logs",
        "cancel": "end runs",
        "results": "one table of metrics with intervals over runs",
        "gather": "copy results, checkpoints and logs, verified",
    },
    "run": {
        "run": "run a command as a job made from flags",
        "render": "print exactly what submit would send; changes nothing",
        "schema": "print the JSON Schema of a job",
        "dev": "open a shell with a job's image, inputs and code",
        "retry": "run a failed or cancelled run again from its newest checkpoint",
        "move": "let a run go on at the next backend of its list",
        "exec": "run a command beside a run's, where it runs",
        "forward": "forward a port of a run to this machine",
    },
    "watch": {
        "wait": "wait until runs end",
        "top": "show what running runs use: CPUs, memory, GPUs",
        "groups": "list what was submitted together: when, its jobs, their states",
        "queues": "show queues: length, places of runs, quota; stop and resume one",
        "monitor": "one live page over runs, trainings, evaluations and cost, on this machine",
    },
    "results": {
        "compare": "paired statistics of one evaluation against another",
        "diff": "show in which fields two runs' jobs differ, or a run's and a file's",
        "cost": "what jobs would cost, what runs cost so far and have cost",
    },
    "share": {
        "report": "write one self-contained HTML page",
        "notify": "tell people when runs end, fail, collapse or near their budget",
        "trace": "send runs, attempts and turns to an OpenTelemetry collector",
    },
    "GitOps": {
        "validate": "check manifests as a cluster would, without a cluster",
        "lint": "check a folder of rendered jobs that Argo CD or Flux apply",
        "push": "upload the code overlays of rendered jobs to the store",
    },
    "clean up": {
        "reap": "end lost runs and delete their leftovers on a backend",
        "rm": "delete what ended runs have in the store",
        "gc": "delete old runs, old checkpoints and unreferenced objects",
    },
    "this machine": {
        "local": "the local backend's supervisor: status, start, stop, install",
        "images": "the images that jobs run in: list, build, push, scan, check, verify, prune",
        "cluster": "a Kubernetes cluster on this machine, with kind: up, down, status",
        "secrets": "set, list and remove local secrets",
        "completion": "print a shell's completion script",
    },
}
# verb -> (module, one line for --help)
VERBS: dict[str, tuple[str, str]] = {
    verb: (f"launcher.cli.verbs.{verb}", line) for group in _GROUPS.values() for verb, line in group.items()
}


def usage() -> str:
    width = max(map(len, VERBS))
    lines = [
        "usage: launcher VERB [options]      launcher VERB --help",
        "",
        "Takes a computer-use agent from recordings to a measured result: one YAML file, one command.",
        "",
        *(
            line
            for title, verbs in _GROUPS.items()
            for line in (f"{title}:", *(f"  {verb:<{width}}  {summary}" for verb, summary in verbs.items()), "")
        ),
        "  example: launcher submit examples/login --backend local --follow",
        "",
        "exit codes: 0 ok, 1 the run failed, 2 bad input, 3 not found, 4 the backend or the store does not answer, or",
        "  a record in it cannot be read, 5 conflict, 70 a fault of the launcher itself",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Entry point of `launcher`; returns the exit code."""
    if argv is None:
        process.begin()
    # Importing allocates much and frees nothing: with its default threshold the collector would take 5 of 70 ms.
    set_threshold(50_000, 20, 50)
    arguments = sys.argv[1:] if argv is None else argv
    said = f"launcher {arguments[0]}" if arguments and arguments[0] in VERBS else "launcher"
    code = process.guarded(said, lambda: _main(arguments))
    if argv is None:
        freeze()  # else the interpreter's end searches all modules for circles: 12 of 110 ms
    return code


def _main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "help" and arguments[1] in VERBS:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from launcher.version import __version__

        print(f"slipway {__version__}")
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        near = verb_meant(verb)
        hint = f" Did you mean `{near}`?" if near else ""
        print(f"launcher: unknown verb `{verb}`.{hint} `launcher --help` lists them.", file=sys.stderr)
        return 2
    from launcher.msgspec_import import load_msgspec

    load_msgspec()
    from launcher.cli.arguments import call

    return call(verb, VERBS[verb][0], rest)


# The verbs of programs that users of this one know: kubectl, docker, SkyPilot, dstack, az and git. They answer an
# unknown verb.

_OF = {
    "submit": ("apply", "create", "launch", "start", "train", "up"),
    "status": ("describe", "get", "history", "inspect", "job", "jobs", "list", "ls", "ps", "runs", "show", "watch"),
    "cancel": ("abort", "delete", "destroy", "down", "end", "kill", "stop", "terminate"),
    "logs": ("attach", "follow", "log", "tail"),
    "gather": ("copy", "cp", "download", "fetch", "pull", "sync"),
    "exec": ("bash", "sh", "shell", "ssh"),
    "forward": ("port", "port-forward", "tunnel"),
    "retry": ("relaunch", "rerun", "restart", "resume"),
    "doctor": ("check", "config", "info", "login", "whoami"),
    "queues": ("queue",),
    "results": ("metrics", "result", "scores"),
    "monitor": ("dashboard", "ui", "web"),
    "images": ("build", "image"),
    "cost": ("bill", "price"),
    "gc": ("prune",),
    "--version": ("version",),
    "--help": ("usage",),
}
MEANS = {word: verb for verb, words in _OF.items() for word in words}


def verb_meant(word: str) -> str:
    """The one of our `verbs` that this word probably stands for, or ""."""
    from difflib import get_close_matches

    known = word.lower()
    if known in VERBS or known in MEANS:
        return MEANS.get(known, known)
    near = get_close_matches(known, [*VERBS, *MEANS], n=1)
    return MEANS.get(near[0], near[0]) if near else ""
