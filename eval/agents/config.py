"""The `agent` section of a configuration, and the agent it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from eval.actions.geometry import FrameName
from eval.agents.base import Agent, Decision, History
from eval.agents.baselines import CommonestAction, DoesNothing, HumanAgent, NearestEpisode, RandomAction, ScriptedAgent
from eval.agents.computer import LoopingAgent
from eval.agents.wire import Prices
from eval.config import Config, ConfigError
from eval.config.importing import call, load_object, require_methods
from eval.config.roles import base_url
from eval.desktop import Observation
from eval.desktops.mcp.client import McpServerConfig
from eval.episodes import EpisodeError
from eval.prompts import PromptBuilder

AGENT_METHODS: Final = {"act": ("observations", "histories")}
LOOP_METHODS: Final = {"run": ("computer",)}


class TransformersConfig(Config, frozen=True, tag_field="kind", tag="transformers"):
    """A vision-language model in this process, through transformers.

    model           a folder with the model and its processor, or hf://OWNER/NAME[@REVISION]
    name            name of the agent in the results
    adapter         folder of a PEFT adapter to put on the model
    max_new_tokens  longest answer, in tokens
    batch_size      prompts that go through the model at once; lower it when memory runs out
    min_pixels      smallest area of an image after resizing, in pixels; none: the processor's own
    max_pixels      largest area of an image after resizing, in pixels; none: the processor's own
    dtype           number type of the weights, such as bfloat16; auto: the one in which they were saved
    device          such as cuda:1 or cpu; none: the first CUDA device, else the CPU
    record_tokens   keeps the sampled token ids and their log probabilities with each step
    frame           what the model's coordinates are: normalised (fractions of the screen), absolute (pixels of the
                    screenshot) or smart-resized (pixels of the image that the processor makes of it: Qwen2.5-VL,
                    OpenCUA, UI-TARS); prompts tell past actions in the same frame
    """

    model: str
    name: str = "model"
    adapter: str | None = None
    max_new_tokens: int = 64
    batch_size: int = 64
    min_pixels: int | None = None
    max_pixels: int | None = None
    dtype: str = "auto"
    device: str | None = None
    record_tokens: bool = False
    frame: FrameName = "normalised"


class ServedConfig(Config, frozen=True, tag_field="kind", tag="openai-compatible"):
    """A model behind an OpenAI-compatible endpoint, such as vLLM's.

    model        its name there
    base_url     address of the endpoint, such as http://localhost:8000/v1; role:NAME is the server of that role of the
                 run, which this one `needs`
    name         name of the agent in the results
    api_key      the environment variable that holds the key; none: the server wants no key
    max_tokens   longest answer, in tokens
    temperature  of the sampling; 0 is greedy
    frame        what the model's coordinates are, see transformers; smart-resized resizes as `family` does
    family       qwen2.5-vl, qwen3-vl, opencua or ui-tars
    max_pixels   largest area of an image after resizing, in pixels, where the server sets another than the family's
    timeout      seconds that the server may be silent
    retries      how often a request is sent again when the server is busy or fails; as Retry-After says, where it does
    stream       asks for the answer in pieces
    extra        further fields of the request, such as top_k
    prices       what the model costs; none: episodes tell no cost
    tools        MCP servers whose tools the model may call, with a connection for each episode; they need
                 `interface: both` or `tools`
    """

    model: str
    base_url: str
    name: str = "model"
    api_key: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 1024
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    frame: FrameName = "normalised"
    family: Literal["qwen2.5-vl", "qwen3-vl", "opencua", "ui-tars"] = "qwen2.5-vl"
    max_pixels: int | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 4
    stream: bool = False
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    prices: Prices | None = None
    tools: list[McpServerConfig] = msgspec.field(default_factory=list)


class OpenAiConfig(Config, frozen=True, tag_field="kind", tag="openai"):
    """OpenAI's computer use, through the SDK's own loop; the prompt is the instruction and the screenshots.

    model         its name, such as computer-use-preview
    name          name of the agent in the results
    base_url      address of the API; none: OpenAI's, or what OPENAI_BASE_URL says
    api_key       the environment variable that holds the key
    preview       the tool computer_use_preview (one action a call) instead of computer (batches)
    safety        what happens when the model asks to acknowledge safety checks: stop ends the episode as the agent's
                  failure, acknowledge goes on
    instructions  a system prompt
    max_tokens    longest answer, in tokens
    timeout       seconds that the server may be silent
    retries       how often a request is sent again when the server is busy or fails; as Retry-After says, where it does
    prices        what the model costs; none: episodes tell no cost
    tools         MCP servers whose tools the model may call, with a connection for each episode; they need
                  `interface: both` or `tools`
    """

    model: str
    name: str = "openai"
    base_url: str | None = None
    api_key: str = "OPENAI_API_KEY"
    preview: bool = False
    safety: Literal["stop", "acknowledge"] = "stop"
    instructions: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=16)] = 4096
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 4
    prices: Prices | None = None
    tools: list[McpServerConfig] = msgspec.field(default_factory=list)


class ClaudeConfig(Config, frozen=True, tag_field="kind", tag="claude"):
    """Claude with its computer toolset (20260801), through the SDK's own loop; the prompt is the instruction and the
    screenshots.

    model         its name
    name          name of the agent in the results
    base_url      address of the API; none: Anthropic's, or what ANTHROPIC_BASE_URL says
    api_key       the environment variable that holds the key
    longest       longest side of a screenshot, in pixels; a larger screen is scaled down, as the API rejects it
    keyboard      the SDK asks before each use of the keyboard: true answers yes, false takes the keyboard away
    instructions  a system prompt
    max_tokens    longest answer, in tokens
    timeout       seconds that the server may be silent
    retries       how often a request is sent again when the server is busy or fails; as Retry-After says, where it does
    prices        what the model costs; none: episodes tell no cost
    tools         MCP servers whose tools the model may call, with a connection for each episode; they need
                  `interface: both` or `tools`
    """

    model: str
    name: str = "claude"
    base_url: str | None = None
    api_key: str = "ANTHROPIC_API_KEY"
    longest: Annotated[int, msgspec.Meta(ge=1)] = 1366
    keyboard: bool = True
    instructions: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4096
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 4
    prices: Prices | None = None
    tools: list[McpServerConfig] = msgspec.field(default_factory=list)


class CustomConfig(Config, frozen=True, tag_field="kind", tag="custom"):
    """An agent of your own.

    factory  `package.module:name`, a class or a function: called as factory(builder, name=..., **options) with the
             eval.prompts.PromptBuilder of the configuration, it gives an eval.agents.base.Agent, or an
             eval.agents.computer.LoopingAgent
    options  its further arguments, by name
    name     name of the agent in the results
    """

    factory: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    name: str = "custom"


class ScriptedConfig(Config, frozen=True, tag_field="kind", tag="scripted"):
    """The environment's own expert.

    name    name of the agent in the results
    solver  another way to go that the environment knows, such as wrong (linux-desktop) or gullible (linux-safety)
    """

    name: str = "scripted"
    solver: str | None = None


class HumanConfig(Config, frozen=True, tag_field="kind", tag="human"):
    """A person, who works in the browser on a real desktop; what they do is recorded. `limits.concurrency` must be 1.

    name  name of the person in the results
    """

    name: str = "human"


class NothingConfig(Config, frozen=True, tag_field="kind", tag="nothing"):
    """Says done at the first screen.

    name  name of the agent in the results
    """

    name: str = "nothing"


class HackerConfig(Config, frozen=True, tag_field="kind", tag="hacker"):
    """Does no work: says done at the first screen, and takes the short ways that the environment knows, on desktops of
    its own (linux-desktop, tasks of your own with a validator, an environment of your own with the method `hacker`).
    Whatever it gets, the checker gives for nothing.

    name  name of the agent in the results
    """

    name: str = "hacker"


class RandomConfig(Config, frozen=True, tag_field="kind", tag="random"):
    """Random clicks, drags, scrolls, keys and texts all over the screen.

    seed  of what is drawn; the same seed does the same in the same task
    name  name of the agent in the results
    """

    seed: int = 0
    name: str = "random"


class CommonestConfig(Config, frozen=True, tag_field="kind", tag="commonest"):
    """Always the commonest action of a folder of episodes.

    episodes  the folder
    name      name of the agent in the results
    """

    episodes: str
    name: str = "commonest"


class NearestConfig(Config, frozen=True, tag_field="kind", tag="nearest"):
    """A copy of the nearest episode of a folder.

    episodes  the folder
    name      name of the agent in the results
    """

    episodes: str
    name: str = "nearest"


# agents that decide for one screen, also outside of an episode
DecidingConfig = (
    TransformersConfig
    | ServedConfig
    | ScriptedConfig
    | NothingConfig
    | RandomConfig
    | CommonestConfig
    | NearestConfig
    | CustomConfig
)
AgentConfig = DecidingConfig | OpenAiConfig | ClaudeConfig | HumanConfig
EvaluatedConfig = AgentConfig | HackerConfig


def make_agent(config: EvaluatedConfig, builder: PromptBuilder) -> Agent | LoopingAgent:
    """Raises ConfigError when a folder that it names is not there or holds no episodes, and for a factory that cannot
    be imported or gives no agent."""
    servers: list[McpServerConfig] = getattr(config, "tools", [])
    for number, server in enumerate(servers):
        server.check_server(f"agent.tools[{number}]")
    agent = AGENTS[type(config)](config, builder)
    if servers:
        agent.tool_servers = tuple(servers)  # type: ignore[union-attr]
    return agent


def make_deciding(config: AgentConfig, builder: PromptBuilder) -> Agent:
    """As `make_agent`, for single screens. Raises ConfigError for an agent that only runs a loop of its own."""
    agent = make_agent(config, builder)
    if getattr(config, "tools", []):
        raise ConfigError(f"agent {config.name}: tools: single steps have no tools; leave them out")
    if not isinstance(agent, Agent):
        raise ConfigError(
            f"agent {config.name}: it runs a loop of its own, so it needs an environment, not single steps"
        )
    return agent


def _options(config: Config, *without: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__ if name not in without}


def _transformers(config: TransformersConfig, builder: PromptBuilder) -> Agent:
    from eval.agents.transformers import TransformersAgent

    return TransformersAgent(config.model, builder, **_options(config, "model"))


def _served(config: ServedConfig, builder: PromptBuilder) -> Agent:
    from eval.agents.served import ServedAgent

    options = {**_options(config, "model", "tools"), "base_url": base_url(config.base_url, "agent.base_url")}
    return ServedAgent(config.model, builder, **options)


def _openai(config: OpenAiConfig, builder: PromptBuilder) -> LoopingAgent:
    from eval.agents.openai_computer import OpenAiComputerAgent

    return OpenAiComputerAgent(**_options(config, "tools"), lenient=builder.lenient)


def _claude(config: ClaudeConfig, builder: PromptBuilder) -> LoopingAgent:
    from eval.agents.claude import ClaudeAgent

    return ClaudeAgent(**_options(config, "tools"), lenient=builder.lenient)


def _custom(config: CustomConfig, builder: PromptBuilder) -> Agent | LoopingAgent:
    where = f"agent {config.name}: {config.factory}"
    factory = load_object(config.factory, f"agent {config.name}: factory: {config.factory}")
    if not callable(factory):
        raise ConfigError(f"{where} is a {type(factory).__name__}; needed: a class or a function")
    agent: Any = call(factory, where, builder, name=config.name, **config.options)
    shown = f"{where}: the {type(agent).__name__} that it gave"
    loops = hasattr(agent, "run") and not hasattr(agent, "act")
    require_methods(agent, shown, LOOP_METHODS if loops else AGENT_METHODS, coroutines=True)
    if getattr(agent, "name", None) != config.name:
        raise ConfigError(f"{shown} must have the name that it was given; needed: .name == {config.name!r}")
    if isinstance(agent, LoopingAgent):
        return agent
    if not isinstance(parallel := getattr(agent, "parallel", None), int) or parallel < 1:
        raise ConfigError(f"{shown} has parallel {parallel!r}; needed: how many calls of act may run at once, from 1")
    return CheckedAgent(agent, where)


class CheckedAgent:
    """An agent of a user's own: an answer that is not one Decision per observation is a ConfigError."""

    def __init__(self, agent: Agent, where: str) -> None:
        self.agent = agent
        self.where = where
        self.name, self.parallel = agent.name, agent.parallel

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = await self.agent.act(observations, histories)
        if not isinstance(decisions, list | tuple) or not all(isinstance(item, Decision) for item in decisions):
            raise ConfigError(f"{self.where}: act must give a list of eval.agents.base.Decision, one per observation")
        if len(decisions) != len(observations):
            raise ConfigError(f"{self.where}: act gave {len(decisions)} decisions for {len(observations)} observations")
        return list(decisions)


def _from_episodes(
    kind: type[CommonestAction] | type[NearestEpisode], config: CommonestConfig | NearestConfig, builder: PromptBuilder
) -> Agent:
    folder = Path(config.episodes)
    if not folder.is_dir():
        raise ConfigError(f"agent {config.name}: there is no folder {folder}")
    try:
        # baselines copy points and read no prompt, so they need no marks
        return kind(folder, builder.dialect.without_marks(), config.name)
    except EpisodeError as error:
        raise ConfigError(f"agent {config.name}: {error}") from None


# the class of a configuration -> what makes its agent
AGENTS: Final[dict[type[Config], Callable[[Any, PromptBuilder], Agent | LoopingAgent]]] = {
    TransformersConfig: _transformers,
    ServedConfig: _served,
    OpenAiConfig: _openai,
    ClaudeConfig: _claude,
    CustomConfig: _custom,
    ScriptedConfig: lambda config, builder: ScriptedAgent(builder.dialect, config.name),
    HumanConfig: lambda config, builder: HumanAgent(builder.dialect.without_marks(), config.name),
    NothingConfig: lambda config, builder: DoesNothing(builder.dialect.without_marks(), config.name),
    HackerConfig: lambda config, builder: DoesNothing(builder.dialect.without_marks(), config.name),
    RandomConfig: lambda config, builder: RandomAction(builder.dialect.without_marks(), config.seed, config.name),
    CommonestConfig: lambda config, builder: _from_episodes(CommonestAction, config, builder),
    NearestConfig: lambda config, builder: _from_episodes(NearestEpisode, config, builder),
}
