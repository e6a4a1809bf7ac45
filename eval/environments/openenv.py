"""The environment `openenv`: others' environments behind a server of OpenEnv. See `OpenEnvOptions`.

A desktop takes our actions as JSON and shows a picture. Any other environment takes a text, which an agent types: the
text becomes a field of the environment's action. Where an episode ends by a limit here, a desktop is told `done`, so
that it is judged; one of texts that gave no reward has the score 0. What the server does not answer is the
infrastructure's failure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from eval.actions import Action, ActionType
from eval.config import Config, ConfigError, convert, need
from eval.desktop import ActionRefused, Desktop, DesktopGone, InfraError, Observation, Score, Task
from eval.environments.drawn import STILL, RewardKind, picture_of, reward_score, sent_picture, served_tasks

MAX_STEPS: Final = 50
MESSAGE_LIMIT: Final = 100 << 20  # bytes; as the public client has it
WRONG: Final = ("VALIDATION_ERROR", "INVALID_JSON")  # codes of an answer that the action was wrong, not the server


class OpenEnvOptions(Config, frozen=True):
    """
    url          of the server: http://HOST:PORT
    token        the environment variable with the token that the server wants, which is sent as a Bearer's
    instruction  what the agent is told; none: what the first observation says as `instruction`
    reset        further arguments of a reset, beside the seed
    action       desktop: the server takes our actions as JSON; text: what the agent types is the field `field`
    field        the field of a text
    picture      the field of an observation that holds a picture, base64; none: the observation in words, as a picture
    reward       which rewards are the score: the last one, or their sum
    solved       the reward from which an episode is solved; it is cut to [0, 1] for the score
    max_steps    answers of an episode at most
    """

    url: str
    token: str | None = None
    instruction: str | None = None
    reset: dict[str, Any] = msgspec.field(default_factory=dict)
    action: Literal["desktop", "text"] = "desktop"
    field: str = "message"
    picture: str | None = "screenshot"
    reward: RewardKind = "last"
    solved: float = 1.0
    max_steps: int = MAX_STEPS

    def check(self) -> None:
        """Raises ConfigError."""
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"options.url: {self.url!r}; allowed: http://HOST:PORT or https://HOST:PORT")
        if self.token is not None and not os.environ.get(self.token):
            raise ConfigError(f"options.token: the environment variable {self.token} is not set")


class OpenEnvDesktop:
    """One session of a server."""

    def __init__(self, options: OpenEnvOptions) -> None:
        self.options = options
        self.rewards: list[float] = []
        self._web: Any = None
        self._socket: Any = None

    async def reset(self, task: Task, seed: int) -> Observation:
        self.rewards = []
        return self._seen(await self._ask("reset", {**self.options.reset, "seed": seed}))

    async def step(self, action: Action) -> Observation:
        if self.last.done:
            return self.last
        if self.options.action == "desktop":
            seen = self._seen(data := await self._ask("step", action.to_json()))
            told = (data.get("observation") or {}).get("told")
            if isinstance(told, str) and not seen.done:  # a server of ours could not do it
                raise ActionRefused(told)
            return seen
        if action.type in STILL or action.type is ActionType.CLICK:  # a click does nothing
            return self.last
        if action.type is not ActionType.TYPE or action.text is None:
            raise ActionRefused("here one can only type a text")
        return self._seen(await self._ask("step", {self.options.field: action.text}))

    async def instruction(self, seed: int) -> str:
        """What the first observation of a seed tells. Raises ConfigError where it tells none."""
        data = await self._ask("reset", {**self.options.reset, "seed": seed})
        told = data.get("observation", {}).get("instruction")
        if not isinstance(told, str) or not told:
            raise ConfigError("options.instruction: is missing; the server's observations tell none")
        return told

    async def score(self) -> Score:
        # at the limit of steps: it is to be judged as it is
        if self.options.action == "desktop" and not self.last.done:
            self._seen(await self._ask("step", Action(ActionType.DONE).to_json()))
        return reward_score(self.rewards, self.options.reward, self.options.solved)

    async def close(self) -> None:
        if self._web is not None:
            await self._web.close()

    async def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The data of the answer. Raises DesktopGone, InfraError, and ActionRefused for a wrong action."""
        import aiohttp

        try:
            if self._socket is None:
                secret = None if self.options.token is None else os.environ[self.options.token]
                headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
                self._web = aiohttp.ClientSession(headers=headers)
                url = f"{self.options.url.rstrip('/')}/ws"
                self._socket = await self._web.ws_connect(url, max_msg_size=MESSAGE_LIMIT)
            await self._socket.send_str(msgspec.json.encode({"type": kind, "data": data}).decode())
            answer = await self._socket.receive_json()
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise ConfigError(f"options.token: the server refuses it ({error.status})") from None
            raise DesktopGone(f"{self.options.url}: status {error.status}") from None
        except (aiohttp.ClientError, OSError, TypeError, ValueError) as error:
            raise DesktopGone(f"{self.options.url}: {type(error).__name__}: {error}") from None
        given = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(given, dict):
            raise InfraError(f"{self.options.url}: an answer without data")
        if answer.get("type") == "error":
            why = f"{given.get('code')}: {str(given.get('message'))[:300]}"
            if kind == "step" and given.get("code") in WRONG:
                raise ActionRefused(why)
            raise InfraError(f"{self.options.url}: {why}")
        return given

    def _seen(self, data: dict[str, Any]) -> Observation:
        told = data.get("observation") or {}
        if isinstance(reward := data.get("reward"), int | float):
            self.rewards.append(float(reward))
        if self.options.picture is None:
            image = picture_of("\n".join(f"{name}: {value}" for name, value in told.items()))
        else:
            image = sent_picture(told.get(self.options.picture), f"observation.{self.options.picture}")
        self.last = Observation(image, image.size, done=bool(data.get("done")))
        return self.last


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError, and SetupFailed where the server is not there to
    tell their instructions."""
    chosen = _options(options)
    return served_tasks("openenv", range(seed, seed + count), chosen, OpenEnvDesktop, "url")


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A session of its own. Raises ConfigError."""
    need("aiohttp")
    return OpenEnvDesktop(_options(options))


def _options(options: Mapping[str, Any]) -> OpenEnvOptions:
    chosen = convert(dict(options), OpenEnvOptions, "options")
    chosen.check()
    return chosen
