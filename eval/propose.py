"""Lets a model propose tasks for the screens of an environment, and keeps those that can be set up, judged and solved:
`python -m eval.propose --config FILE`.

A proposal says what is asked, the files and programs that it begins with, and either its right end, path -> text
(`solved`), or questions about the last screens (`milestones`), which a judge that is a model answers. It is kept when

- it can be set up on a real desktop;
- who says done at once gets 0;
- its oracle gets 1: with `solved`, a player that writes those files; else the agent, in one of its tries at least.

--out gets proposed.jsonl, a task a line, for `{source: file}` of the environment sources, and refused.jsonl with the
reason of each other proposal. A server that cannot be reached ends the command: a proposal is refused for what it is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import msgspec

from eval import config as configuration
from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Agent, Decision
from eval.agents.baselines import DoesNothing
from eval.agents.computer import Computer, LoopingAgent
from eval.agents.config import DecidingConfig, make_agent
from eval.agents.wire import ServerFailed, failure, key, package, png
from eval.config import Config, ConfigError, convert
from eval.config import help as config_help
from eval.config.roles import base_url
from eval.desktop import SetupFailed
from eval.environments.registry import EnvironmentName, TasksConfig, environment, tasks_of
from eval.episodes import ToolCall
from eval.judges.vlm import VlmJudgeConfig
from eval.prompts import PromptConfig
from eval.records.earlier_results import repeated
from eval.rollout.loop import Rollout, RolloutLimits, rollout

KEPT: Final = "proposed.jsonl"
REFUSED: Final = "refused.jsonl"
NAME: Final = "proposer"
DIALECT: Final = Dsl(4)
ASKED: Final = (
    "The picture shows a Linux desktop. Propose {count} different tasks that a person could do on such a desktop with "
    "these programs: {programs}. Each begins on a desktop of its own, with an empty home folder. Answer with a JSON "
    'list and nothing else. Each task is an object: "instruction", what is asked, exact enough to be judged; "files", '
    'path -> text of the files that it begins with; "start", the programs that are started, each a list of the program '
    'and its arguments; and either "solved", path -> text of each file that is other in the end, null for one that is '
    'gone, or "milestones", a list of questions about the screen in the end, whose answers are yes where the task is '
    "done."
)


class ProposerConfig(Config, frozen=True, kw_only=True):
    """
    model        its name at an OpenAI-compatible endpoint
    base_url     address of the endpoint, such as http://localhost:8000/v1; role:NAME is the server of that role of the
                 run, which this one `needs`
    api_key      the environment variable that holds the key; none: the server wants no key
    temperature  of the sampling
    max_tokens   longest answer, in tokens
    timeout      seconds that the server may be silent
    retries      how often a request is sent again when the server is busy or fails
    """

    model: str
    base_url: str
    api_key: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4096
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 4


class ProposeConfig(Config, frozen=True, kw_only=True):
    """
    environment  whose start screens the model is shown
    tasks        how many of its tasks, and from which seed: a screen each
    options      options of the environment itself
    proposer     the model that proposes
    each         proposals for each screen
    programs     that a proposal may start
    judge        judges proposals with `milestones`; None: these are refused
    agent        tries them; None: these are refused
    tries        of the agent
    prompt       the agent's, the same section as the evaluation's
    limits       steps, time limits and attempts of an episode
    """

    environment: EnvironmentName
    tasks: TasksConfig
    proposer: ProposerConfig
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    each: Annotated[int, msgspec.Meta(ge=1)] = 4
    programs: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["mousepad", "thunar", "xterm"]
    )
    judge: VlmJudgeConfig | None = None
    agent: DecidingConfig | None = None
    tries: Annotated[int, msgspec.Meta(ge=1)] = 3
    prompt: PromptConfig = PromptConfig()
    limits: RolloutLimits = RolloutLimits()


class Proposal(Config, frozen=True):
    """What a model proposes. The fields are those of a task of one's own (eval.environments.custom)."""

    instruction: str
    files: dict[str, str] = msgspec.field(default_factory=dict)
    start: list[list[str]] = msgspec.field(default_factory=list)
    solved: dict[str, str | None] | None = None
    milestones: list[str] = msgspec.field(default_factory=list)

    def check(self, programs: Sequence[str]) -> None:
        """Raises ConfigError."""
        if not self.instruction.strip():
            raise ConfigError("instruction: is empty")
        if bool(self.solved) == bool(self.milestones):
            raise ConfigError("allowed: one of solved and milestones")
        for path in (*self.files, *(self.solved or ())):
            if path.startswith("/") or ".." in PurePosixPath(path).parts:
                raise ConfigError(f"{path} is not a path below the home")
        if odd := [argv for argv in self.start if not argv or argv[0] not in programs]:
            raise ConfigError(f"start: {odd[0]}; allowed: {', '.join(programs)}")

    def task(self, name: str) -> dict[str, Any]:
        """As a task of the environment sources."""
        told = {name: value for name, value in msgspec.to_builtins(self).items() if value}
        return {"id": name, **told, **({} if self.solved is None else {"changes": sorted(self.solved)})}


class WritesSolution:
    """The oracle of a task with a right end: writes its files by commands, and says done."""

    calls_tools = True
    name = "oracle"

    def __init__(self, solved: Mapping[str, str | None]) -> None:
        self.solved = solved

    async def run(self, computer: Computer) -> None:
        for path, text in self.solved.items():
            told = shlex.quote(path)
            command = f"rm -r -- {told}"
            if text is not None:
                coded = base64.b64encode(text.encode()).decode()
                command = f'mkdir -p -- "$(dirname {told})" && echo {coded} | base64 -d > {told}'
            computer.begin(Decision(command, None))
            await computer.call(ToolCall(name="run_command", arguments={"command": command}))
        done = Action(ActionType.DONE)
        await computer.answer(Decision(DIALECT.format_response(done), done))


def read_proposals(answer: str, programs: Sequence[str]) -> list[Proposal | str]:
    """The proposals of a model's answer, in order; a text for one that is none."""
    place = answer.find("[")
    try:
        entries, _ = json.JSONDecoder().raw_decode(answer, place) if place >= 0 else (None, 0)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        return ["the answer holds no JSON list"]
    found: list[Proposal | str] = []
    for entry in entries:
        try:
            proposal = convert(entry, Proposal, "proposal")
            proposal.check(programs)
        except ConfigError as error:
            found.append(str(error))
        else:
            found.append(proposal)
    return found


async def proposals(config: ProposeConfig) -> list[Proposal | str]:
    """What the model proposes for the screens, each instruction once. Raises InfraError and ConfigError."""
    chosen, world = config.proposer, environment(config.environment)
    sdk = package("openai", NAME)
    desktop = world.desktop(config.options)
    found: dict[str, Proposal | str] = {}
    settings = {"base_url": base_url(chosen.base_url, "proposer.base_url"), "api_key": key(chosen.api_key, NAME)}
    try:
        async with sdk.AsyncOpenAI(**settings, timeout=chosen.timeout, max_retries=chosen.retries) as client:
            for task in tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options):
                shown = (await desktop.reset(task, task.seed)).image
                text = ASKED.format(count=config.each, programs=", ".join(config.programs))
                picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(shown)}"}}
                try:
                    completion = await client.chat.completions.create(
                        model=chosen.model,
                        messages=[{"role": "user", "content": [picture, {"type": "text", "text": text}]}],
                        max_tokens=chosen.max_tokens,
                        temperature=chosen.temperature,
                    )
                except Exception as error:
                    raise ServerFailed(f"{NAME}: {failure(sdk, error, NAME)}") from None
                said = completion.choices[0].message.content if completion.choices else None
                for each in read_proposals(said or "", config.programs):
                    found.setdefault(each if isinstance(each, str) else each.instruction, each)
    finally:
        await desktop.close()
    return list(found.values())


class ProposalChecks:
    """The runs that a proposal must pass; their records go into folders of `out`."""

    def __init__(self, config: ProposeConfig, out: Path) -> None:
        self.config = config
        self.out = out

    async def refused(self, proposal: Proposal, name: str) -> str:
        """Why a proposal is not kept; "" for one that is. Raises InfraError where a server is gone."""
        chosen = self.config
        by_model = not proposal.solved
        if by_model and (chosen.judge is None or chosen.agent is None):
            return "it has milestones, and there is no judge or no agent"
        options: dict[str, Any] = {"sources": [{"source": "custom", "tasks": [proposal.task(name)]}]}
        if by_model:
            options["vlm"] = msgspec.to_builtins(chosen.judge)
        try:
            tasks_of("sources", 1, 0, options)
        except ConfigError as error:
            return str(error)
        (nothing,) = await self._play(name, DoesNothing(DIALECT), options)
        if nothing.record.outcome != "scored":
            return f"set-up: {nothing.record.error}"
        if nothing.record.score:
            return f"who does nothing gets {nothing.record.score:g}"
        if proposal.solved:
            return _oracle(await self._play(name, WritesSolution(proposal.solved), options, tools=True))
        assert chosen.agent is not None
        agent = make_agent(chosen.agent, chosen.prompt.builder())
        return _oracle(await self._play(name, agent, options, trials=chosen.tries))

    async def _play(
        self,
        name: str,
        agent: Agent | LoopingAgent,
        options: Mapping[str, Any],
        *,
        tools: bool = False,
        trials: int = 1,
    ) -> list[Rollout]:
        """Raises InfraError where a model's server failed: that says nothing of the proposal."""
        results = await rollout(
            agent,
            lambda: environment("sources").desktop(options),
            repeated(tasks_of("sources", 1, 0, options), trials),
            out=self.out / "checks" / name / agent.name,
            benchmark="proposed",
            environment="sources",
            options=options,
            interface="both" if tools else "gui",
            limits=self.config.limits,
            keep_episodes=0,
        )
        for each in results:
            if (each.record.error or "").startswith(ServerFailed.__name__):
                raise ServerFailed(f"{name}: {each.record.error}")
        return results


def _oracle(results: Sequence[Rollout]) -> str:
    if any(each.record.success for each in results):
        return ""
    last = results[-1].record
    told = last.error if last.outcome != "scored" else f"{last.score:g}"
    return f"its oracle does not solve it in {len(results)} tries: {told}"


async def propose(config: ProposeConfig, out: Path) -> tuple[int, int]:
    """(kept, refused); writes both files. Raises ConfigError, and InfraError where a server is gone."""
    checks = ProposalChecks(config, out)
    kept: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for number, proposal in enumerate(await proposals(config)):
        name = f"proposed-{number}"
        why = proposal if isinstance(proposal, str) else await checks.refused(proposal, name)
        told = {} if isinstance(proposal, str) else proposal.task(name)
        print(f"{name}: {f'refused: {why}' if why else 'kept'}", flush=True)
        (refused if why else kept).append({**told, **({"why": why} if why else {})})
    for file, entries in ((KEPT, kept), (REFUSED, refused)):
        (out / file).write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return len(kept), len(refused)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 some were kept, 1 none was, 2 wrong arguments, 78 a wrong configuration."""
    parser = config_help.parser("eval.propose", "Let a model propose tasks, and keep those that pass.", ProposeConfig)
    parser.add_argument("--out", help="where the tasks and the records go; default $SLIPWAY_OUTPUTS/results")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), ProposeConfig)
        with configuration.results_folder(arguments.out, "results") as out:
            out.mkdir(parents=True, exist_ok=True)
            kept, refused = asyncio.run(propose(config, out))
        print(f"{kept} tasks kept, {refused} refused: {out / KEPT}")
        return int(not kept)

    return configuration.run(run, failures=(SetupFailed, ServerFailed))


if __name__ == "__main__":
    sys.exit(main())
