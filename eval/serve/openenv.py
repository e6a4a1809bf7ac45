"""The face for OpenEnv: its clients speak JSON over a WebSocket at /ws, one session a connection.

The messages are those of openenv-core 0.3 and openenv 0.4 to 0.10 (`env_server/types.py`): reset, step, state and
close; observation, state and error. An action is `{"type": "click", "x": .5, "y": .5}` (eval.actions.Action as JSON),
or `{"answer": TEXT}`, the text of a model in the configured dialect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from aiohttp import WSMsgType, web

from eval.actions import ActionType
from eval.actions.action import FIELDS
from eval.agents.wire import png
from eval.config import ConfigError
from eval.desktop import InfraError
from eval.desktops.mcp.tools import release
from eval.serve.choosing import RequestRefused
from eval.serve.http import BODY_LIMIT, HEALTH, guarded, healthy, watch
from eval.serve.reading import answer_of
from eval.serve.sessions import AfterAnswer, ClientSession, ClientSessions, serve_stream

CODES: Final = {"full": "CAPACITY_REACHED", "no_episode": "SESSION_ERROR"}  # all else: VALIDATION_ERROR
_log = logging.getLogger(__name__)


class OpenEnvReset(msgspec.Struct, forbid_unknown_fields=True):
    """The data of a reset. episode_id: the client's own name for it, which `state` tells."""

    task_id: str | None = None
    seed: int | None = None
    episode_id: str | None = None


class OpenEnvMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a client."""

    type: str
    data: dict[str, Any] = {}


class OpenEnvClient:
    """One connection."""

    def __init__(self, sessions: ClientSessions, session: ClientSession, socket: web.WebSocketResponse) -> None:
        self.sessions = sessions
        self.session = session
        self.socket = socket
        self.seen: AfterAnswer | None = None
        self.name: str | None = None

    async def handle(self, text: str) -> None:
        """Answers a message; whatever is wrong with it is one error."""
        try:
            message = msgspec.json.decode(text, type=OpenEnvMessage)
            kind, data = "observation", await self._answer(message)
            if message.type == "state":
                kind = "state"
        except msgspec.ValidationError as error:
            kind, data = "error", _error("VALIDATION_ERROR", str(error))
        except msgspec.DecodeError as error:
            kind, data = "error", _error("INVALID_JSON", f"the message is not JSON: {error}")
        except RequestRefused as refused:
            kind, data = "error", _error(CODES.get(refused.kind, "VALIDATION_ERROR"), str(refused))
        except (InfraError, ConfigError) as error:
            why = f"{type(error).__name__}: {error}; this is the environment's failure, and no score"
            kind, data = "error", {**_error("EXECUTION_ERROR", why), "infra": True}
        except Exception:
            _log.exception("a message could not be handled")
            kind, data = "error", _error("EXECUTION_ERROR", "the server failed; its log says why")
        await self.socket.send_str(msgspec.json.encode({"type": kind, "data": data}).decode())

    async def _answer(self, message: OpenEnvMessage) -> dict[str, Any]:
        match message.type:
            case "reset":
                asked = msgspec.convert(message.data, OpenEnvReset)
                self.seen = None
                self.seen = await self.session.start(asked.task_id, asked.seed)
                self.name = asked.episode_id
                return await self._shown(self.seen)
            case "step":
                if self.seen is None:
                    raise RequestRefused("no_episode", "a step before a reset")
                data = {name: value for name, value in message.data.items() if name != "metadata"}
                decision = answer_of(data, self.sessions.builder, self.seen.observation.marks)
                self.seen = await self.session.answer(decision)
                return await self._shown(self.seen)
            case "state":
                return self._state()
            case other:
                raise RequestRefused("bad_request", f"type {other[:40]!r}; allowed: reset, step, state, close")

    async def _shown(self, seen: AfterAnswer) -> dict[str, Any]:
        """The data of an observation."""
        image = seen.observation.image
        observation: dict[str, Any] = {
            "instruction": seen.task.instruction,
            "screenshot": await asyncio.to_thread(png, image),
            "width": image.width,
            "height": image.height,
            "task_id": seen.task.task_id,
            "seed": seen.task.seed,
            "steps": seen.steps,
            "told": seen.told,
        }
        if seen.steps == 0:
            observation["answers"] = self.sessions.builder.system_prompt
        record = seen.record
        if record is not None:
            observation |= {"success": record.success, "agent_failure": seen.told if record.parse_failures else None}
        return {"observation": observation, "reward": None if record is None else record.score, "done": seen.done}

    def _state(self) -> dict[str, Any]:
        seen = self.seen
        state: dict[str, Any] = {"episode_id": self.name, "step_count": 0 if seen is None else seen.steps}
        if seen is not None:
            state |= {"task_id": seen.task.task_id, "seed": seen.task.seed, "done": seen.done}
        return state


def _error(code: str, message: str) -> dict[str, Any]:
    return {"message": message, "code": code}


async def _texts(socket: web.WebSocketResponse) -> AsyncIterator[str]:
    """The client's messages, until it closes or goes away."""
    async for frame in socket:
        if frame.type is not WSMsgType.TEXT or _closes(frame.data):
            return
        yield frame.data


def _closes(text: str) -> bool:
    try:
        return msgspec.json.decode(text, type=OpenEnvMessage).type == "close"
    except msgspec.DecodeError:
        return False


def schema() -> dict[str, Any]:
    """JSON schemas of actions, observations and the state."""
    names = sorted({name for must, may in FIELDS.values() for name in must | may})
    text, number = {"type": "string"}, {"type": "integer"}
    action = {
        "type": "object",
        "description": "an action, its points as fractions of the screen; or {answer: the text of a model}",
        "properties": {
            "type": {"enum": [kind.value for kind in ActionType]},
            "answer": text,
            **{name: {} for name in names if name != "point"},
        },
    }
    seen = {"instruction": text, "screenshot": {**text, "contentEncoding": "base64", "contentMediaType": "image/png"}}
    seen |= {"width": number, "height": number, "task_id": text, "seed": number, "steps": number}
    seen["answers"] = {**text, "description": "after a reset: how the text of a model is to be written"}
    state = {"episode_id": {"type": ["string", "null"]}, "step_count": number}
    return {
        "action": action,
        "observation": {"type": "object", "properties": seen},
        "state": {"type": "object", "properties": state},
    }


def make_app(sessions: ClientSessions, token: str | None, *, loopback: bool) -> web.Application:
    """The application. token None: for a socket that only its own user can open."""

    async def connected(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=BODY_LIMIT)
        await socket.prepare(request)
        watch(request)
        session = sessions.session()
        await serve_stream(_texts(socket), OpenEnvClient(sessions, session, socket).handle, session)
        await socket.close()
        return socket

    async def schemas(request: web.Request) -> web.Response:
        return web.json_response(schema())

    async def metadata(request: web.Request) -> web.Response:
        about = f"Desktops of Slipway: {sessions.config.environment}"
        return web.json_response({"name": "slipway", "description": about, "version": release()})

    app = web.Application(middlewares=[guarded(token, loopback=loopback)], client_max_size=BODY_LIMIT)
    app.router.add_get("/ws", connected)
    app.router.add_get(HEALTH, healthy)
    app.router.add_get("/schema", schemas)
    app.router.add_get("/metadata", metadata)
    return app
