"""What the resource manager answers to one request, whatever carries it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.azureml.cloud import Cloud, Refused

# an unsigned JWT whose audience is https://ml.azure.com: the SDK looks when a run has the submitter's identity
TOKEN = "eyJ0eXAiOiJKV1QiLCJhbGciOiJub25lIn0.eyJ0aWQiOiJ0IiwiYXVkIjoiaHR0cHM6Ly9tbC5henVyZS5jb20ifQ."


class Answer(NamedTuple):
    status: int
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})


def respond(cloud: Cloud, now: float, method: str, url: str, authorization: str, body: bytes) -> Answer | None:
    """None: the connection breaks without an answer."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    try:
        if authorization != f"Bearer {TOKEN}":
            raise Refused(401, "AuthenticationFailed", "Authentication failed.")
        cloud.made.advance(now)
        kind = cloud.beside(unquote(parts.path))
        rest = [kind] if kind is not None else cloud.place(unquote(parts.path)).strip("/").split("/")
        call = _call(method, rest) if kind is None else "resources"
        if kind is not None and kind.count("/") == 2:
            call, rest = f"{method.lower()} resource", kind.rsplit("/", 1)
        if call == "compute" and rest[1] not in cloud.settings.computes:
            call = "get resource"
        cloud.note(now, "request", call=call, method=method, path="/".join(rest))
        fault = cloud.fault(call)
        if fault == "drop_before":
            return None
        if fault.isdecimal():
            raise Refused(int(fault), "InternalServerError", "An internal error occurred.")
        answer = _do(cloud, call, rest, query, json.loads(body or b"{}"), now)
        if fault == "drop_after":
            return None
        if fault.startswith("after_"):
            raise Refused(int(fault.removeprefix("after_")), "InternalServerError", "An internal error occurred.")
    except Refused as error:
        return refused(error)
    return answer


def refused(error: Refused) -> Answer:
    inner = {"innererror": {"code": error.inner}} if error.inner else {}
    return Answer(error.status, {"error": {"code": error.code, "message": error.message, "details": [], **inner}})


def _do(cloud: Cloud, call: str, rest: list[str], query: dict[str, str], body: dict[str, Any], now: float) -> Answer:
    match call:
        case "workspace":
            return Answer(200, cloud.workspace())
        case "compute":
            return Answer(200, cloud.compute(rest[1]))
        case "computes":
            return Answer(200, cloud.all_computes())
        case "get resource":
            return Answer(200, cloud.one_resource("GET", rest[0], rest[1], now))
        case "delete resource":
            return Answer(202, cloud.one_resource("DELETE", rest[0], rest[1], now))
        case "resources":
            return Answer(200, cloud.resources(rest[0], int(query.get("$skip", 0))))
        case "create instance":
            return Answer(*cloud.put_instance(rest[1], body, now))
        case "start instance":
            cloud.start_instance(rest[1], now)
            return Answer(202)
        case "environment":
            return Answer(201, cloud.put_environment(rest[1], rest[3], body))
        case "create":
            return Answer(*cloud.put_job(rest[1], body, now))
        case "get":
            return Answer(200, cloud.show(cloud.get_job(rest[1])))
        case "list":
            return Answer(200, cloud.page(query.get("tag", ""), int(query.get("$skip", 0))))
        case "cancel":
            where = f"https://management.azure.com{cloud.cancel(rest[1], now)}?api-version=2023-02-01-preview"
            return Answer(202, None, {"Location": where, "Retry-After": "1"})
        case "operation":
            return Answer(200)
    raise Refused(404, "NotFound", "/".join(rest))


def _call(method: str, rest: list[str]) -> str:
    """The name of a request below the workspace."""
    match method, [part.lower() for part in rest]:
        case "GET", [""]:
            return "workspace"
        case "GET", ["computes", _]:
            return "compute"
        case "PUT", ["computes", _]:
            return "create instance"
        case "POST", ["computes", _, "start"]:
            return "start instance"
        case "DELETE", ["computes", _]:
            return "delete resource"
        case "GET", ["computes"]:
            return "computes"
        case "PUT", ["environments", _, "versions", _]:
            return "environment"
        case "PUT", ["jobs", _]:
            return "create"
        case "GET", ["jobs", _]:
            return "get"
        case "GET", ["jobs"]:
            return "list"
        case "POST", ["jobs", _, "cancel"]:
            return "cancel"
        case "GET", ["operations", _]:
            return "operation"
    return ""
