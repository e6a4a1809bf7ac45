"""The command line: how verbs are typed and how their answers are printed.

A verb module has `SUMMARY` (one line), `EXAMPLE`, `add(parser)` and `run(args) -> int`.
"""

from __future__ import annotations

import sys
from gc import set_threshold  # in this package `gc` is the module of a verb

from launcher.cli import process

# verb -> (module, one line for --help). The line is kept here so that --help imports no verb.
VERBS: dict[str, tuple[str, str]] = {
    "init": ("launcher.cli.verbs.init", "write a commented starter job"),
    "schema": ("launcher.cli.verbs.schema", "print the JSON Schema of a job"),
    "render": ("launcher.cli.verbs.render", "print exactly what submit would send; changes nothing"),
    "validate": ("launcher.cli.verbs.validate", "check manifests as a cluster would, without a cluster"),
    "lint": ("launcher.cli.verbs.lint", "check a folder of rendered jobs that Argo CD or Flux apply"),
    "push": ("launcher.cli.verbs.push", "upload the code overlays of rendered jobs to the store"),
    "submit": ("launcher.cli.verbs.submit", "submit a job, a pipeline or a matrix, exactly once"),
    "run": ("launcher.cli.verbs.run", "run a command as a job made from flags"),
    "status": ("launcher.cli.verbs.status", "show runs: phase, step, progress, last checkpoint, reason"),
    "groups": ("launcher.cli.verbs.groups", "list what was submitted together: when, its jobs, their states"),
    "top": ("launcher.cli.verbs.top", "show what running runs use: CPUs, memory, GPUs"),
    "queues": ("launcher.cli.verbs.queues", "show queues: length, places of runs, quota; stop and resume one"),
    "wait": ("launcher.cli.verbs.wait", "wait until runs end"),
    "logs": ("launcher.cli.verbs.logs", "print or follow a run's logs"),
    "dev": ("launcher.cli.verbs.dev", "open a shell with a job's image, inputs and code"),
    "exec": ("launcher.cli.verbs.exec", "run a command beside a run's, where it runs"),
    "forward": ("launcher.cli.verbs.forward", "forward a port of a run to this machine"),
    "cancel": ("launcher.cli.verbs.cancel", "end runs"),
    "reap": ("launcher.cli.verbs.reap", "end lost runs and delete their leftovers on a backend"),
    "notify": ("launcher.cli.verbs.notify", "tell people when runs end, fail, collapse or near their budget"),
    "move": ("launcher.cli.verbs.move", "let a run go on at the next backend of its list"),
    "retry": ("launcher.cli.verbs.retry", "run a failed or cancelled run again from its newest checkpoint"),
    "rm": ("launcher.cli.verbs.rm", "delete what ended runs have in the store"),
    "gc": ("launcher.cli.verbs.gc", "delete old runs, old checkpoints and unreferenced objects"),
    "gather": ("launcher.cli.verbs.gather", "copy results, checkpoints and logs, verified"),
    "cost": ("launcher.cli.verbs.cost", "what jobs would cost, what runs cost so far and have cost"),
    "results": ("launcher.cli.verbs.results", "one table of metrics with intervals over runs"),
    "compare": ("launcher.cli.verbs.compare", "paired statistics of one evaluation against another"),
    "diff": ("launcher.cli.verbs.diff", "show in which fields two runs' jobs differ, or a run's and a file's"),
    "report": ("launcher.cli.verbs.report", "write one self-contained HTML page"),
    "monitor": (
        "launcher.cli.verbs.monitor",
        "one live page over runs, trainings, evaluations and cost, on this machine",
    ),
    "trace": ("launcher.cli.verbs.trace", "send runs, attempts and turns to an OpenTelemetry collector"),
    "doctor": ("launcher.cli.verbs.doctor", "check this machine, the profile, the store and the backends"),
    "secrets": ("launcher.cli.verbs.secrets", "set, list and remove local secrets"),
    "images": (
        "launcher.cli.verbs.images",
        "the images that jobs run in: list, build, push, scan, check, verify, prune",
    ),
    "cluster": ("launcher.cli.verbs.cluster", "a Kubernetes cluster on this machine, with kind: up, down, status"),
    "local": ("launcher.cli.verbs.local", "the local backend's supervisor: status, start, stop, install"),
    "completion": ("launcher.cli.verbs.completion", "print a shell's completion script"),
}


def usage() -> str:
    width = max(map(len, VERBS))
    lines = [
        "usage: launcher VERB [options]      launcher VERB --help",
        "",
        "Takes a computer-use agent from recordings to a measured result: one YAML file, one command.",
        "",
        *(f"  {verb:<{width}}  {summary}" for verb, (_, summary) in VERBS.items()),
        "",
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
    return process.guarded(said, lambda: _main(arguments))


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
        from launcher.cli.other_words import meant

        near = meant(verb, VERBS)
        hint = f" Did you mean `{near}`?" if near else ""
        print(f"launcher: unknown verb `{verb}`.{hint} `launcher --help` lists them.", file=sys.stderr)
        return 2
    from launcher.light import load_msgspec

    load_msgspec()
    from launcher.cli.arguments import call

    return call(verb, VERBS[verb][0], rest)


if __name__ == "__main__":
    sys.exit(main())
