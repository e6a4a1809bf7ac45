"""Trace: runs, their attempts, episodes and turns as spans of OpenTelemetry, made from the store's records.

Nothing that computes sends a span: the records hold every time that a span needs, so a killed runtime loses none, and
old runs can be sent too. The ids are made of what a span stands for: who sends it again sends the same span.

    submit
      run                    from its submit to its final record
        waiting              until its first attempt
        attempt
          episode            of an evaluation whose episodes were kept
            turn             from the answer before it (or the start) to its own answer

Which group, job, run, attempt, task and turn it was is in a span's attributes: backends group spans by their names.

No text of a task, an agent or a program is in a span: those may be secret, and a collector keeps them elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from launcher.decoding import decode
from launcher.errors import NotFound, SlipwayError, Unreachable
from launcher.protocol.read import read_run
from launcher.protocol.view import AttemptView, RunView
from launcher.report.replays import folders_of
from launcher.results.read import DamagedResults, StoredOutput, decode_lines, open_output
from launcher.spec.model import backend_order
from launcher.store.base import Store
from launcher.verbs.status import Line

BATCH: Final = 512  # spans in one request


class SpanFact(NamedTuple):
    """A span that has ended. Times are seconds since the epoch; `fault` is why it went wrong, "" if it went well."""

    trace: int
    id: int
    parent: int | None
    name: str
    start: float
    end: float
    attributes: dict[str, Any]
    fault: str = ""


class EpisodeTimes(msgspec.Struct, frozen=True):
    """The fields of episode.json that a span has."""

    task_id: str = ""
    agent: str = ""
    outcome: str = "scored"
    success: bool | None = None
    started: str | None = None
    duration_ms: float | None = None


class TurnTokens(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class TurnTime(msgspec.Struct, frozen=True):
    """The fields of a line of steps.jsonl that a span has."""

    time: float | None = None
    parse_error: str | None = None
    refused: str | None = None
    usage: TurnTokens | None = None


def number(bits: int, *parts: object) -> int:
    """The id of what `parts` name; never 0, which means none."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[: bits // 8], "big") or 1


def spans(store: Store, line: Line, group: str | None) -> Iterator[SpanFact]:
    """The spans of a run that have ended. `group`: of its submit. Raises Unreachable, NotFound."""
    view = read_run(store, line.run, full=False)
    trace = number(128, store.url, group or line.run)
    root = number(64, store.url, "run", line.run)
    parent = number(64, store.url, "submit", group) if group is not None else None
    known = {"slipway.run": line.run, "slipway.job": line.name, "slipway.store": store.url}
    if view.job is not None:
        known["slipway.backend"] = backend_order(view.job)[view.turn]
    began = line.created
    if began is not None and line.final and line.ended is not None:
        fault = "" if line.state == "succeeded" else line.reason or line.state
        facts = {**known, "slipway.state": line.state, "slipway.reason": line.reason, "slipway.attempts": line.attempts}
        yield SpanFact(trace, root, parent, "run", began, max(began, line.ended), facts, fault)
    leader = view.job.members()[0] if view.job is not None else ""
    claims = [attempt.claimed[leader] for attempt in view.attempts if leader in attempt.claimed]
    if began is not None and claims:
        waiting = number(64, store.url, "waiting", line.run)
        yield SpanFact(trace, waiting, root, "waiting", began, max(began, min(claims)), dict(known))
    for attempt in view.attempts:
        yield from _attempt(store, view, attempt, leader, trace, root, known)


def _attempt(
    store: Store, view: RunView, attempt: AttemptView, leader: str, trace: int, root: int, known: dict[str, Any]
) -> Iterator[SpanFact]:
    start, exit_ = attempt.claimed.get(leader), attempt.exits.get(leader)
    if start is None or attempt.moved_to or (exit_ is None and view.result is None):
        return
    own = number(64, store.url, "attempt", view.run, attempt.number)
    reason = str(exit_.reason) if exit_ is not None else "lost"
    facts = {
        **known, "slipway.attempt": attempt.number, "slipway.reason": reason,
        "slipway.host": attempt.claims[leader].placement.host,
    }  # fmt: skip
    fault = "" if reason == "succeeded" else reason
    yield SpanFact(trace, own, root, "attempt", start, start + attempt.held(leader), facts, fault)
    try:
        output = open_output(store, view.run, attempt.number)
    except Unreachable:
        raise
    except SlipwayError:
        return
    for folder in folders_of(output) if output is not None else ():
        assert output is not None
        yield from _episode(output, folder, trace, own, {**known, "slipway.attempt": attempt.number})


def _episode(output: StoredOutput, folder: str, trace: int, parent: int, known: dict[str, Any]) -> Iterator[SpanFact]:
    """The spans of a kept episode; nothing for one whose times are not known or that is damaged."""
    path = f"{folder}/steps.jsonl"
    try:
        head = decode(output.read(f"{folder}/episode.json"), EpisodeTimes)
        lines = decode_lines(output.read(path), TurnTime, path) if path in output.files else []
        start = datetime.fromisoformat(head.started).timestamp() if head.started else None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, DamagedResults, NotFound):
        return
    if start is None or head.duration_ms is None:
        return
    own = number(64, output.prefix, "episode", folder)
    facts = {**known, "slipway.task": head.task_id[:200], "slipway.agent": head.agent[:200]}
    if head.success is not None:
        facts["slipway.success"] = head.success
    fault = "" if head.outcome == "scored" else "not run" if head.outcome == "not run" else "infra"
    end = start + max(0.0, head.duration_ms) / 1000
    yield SpanFact(trace, own, parent, "episode", start, end, facts, fault)
    before = start
    for index, line in enumerate(lines):
        if line.time is None:
            return
        told: dict[str, Any] = {**known, "slipway.turn": index}
        if line.usage is not None:
            told["gen_ai.usage.input_tokens"] = line.usage.input_tokens
            told["gen_ai.usage.output_tokens"] = line.usage.output_tokens
        wrong = "answer not valid" if line.parse_error else "action refused" if line.refused else ""
        turn = number(64, output.prefix, "turn", folder, index)
        yield SpanFact(trace, turn, own, "turn", before, max(before, line.time), told, wrong)
        before = max(before, line.time)


def submits(store: Store, lines: Sequence[Line], groups: dict[str, str]) -> Iterator[SpanFact]:
    """The spans of the submits all of whose runs, as far as they are in `lines`, have ended."""
    for group in dict.fromkeys(groups.values()):
        members = [line for line in lines if groups.get(line.run) == group]
        starts = [line.created for line in members if line.created is not None]
        ends = [line.ended for line in members if line.final and line.ended is not None]
        if starts and len(ends) == len(members):
            own, trace = number(64, store.url, "submit", group), number(128, store.url, group)
            bad = [line for line in members if line.state != "succeeded"]
            facts = {"slipway.group": group, "slipway.store": store.url, "slipway.runs": len(members)}
            fault = f"{len(bad)} of {len(members)} runs did not succeed" if bad else ""
            yield SpanFact(trace, own, None, "submit", min(starts), max(*starts, *ends), facts, fault)


class TraceSender:
    """Sends spans to the collector that OpenTelemetry's own variables name; each once in the life of this object.
    `rejected` counts those that a collector took no notice of, `why` is what it said. Raises ModuleNotFoundError
    without the extra `traces`."""

    def __init__(self) -> None:
        import requests
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        session = requests.Session()
        session.hooks["response"].append(self._answered)
        # a session of the user's own cannot be watched
        own = any(name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ if name.startswith("OTEL_PYTHON_"))
        self._exporter = OTLPSpanExporter(session=None if own else session)
        self._sent: set[tuple[int, int]] = set()
        self._odd, self._asked = "", 0
        self.rejected, self.why = 0, ""

    def send(self, facts: Sequence[SpanFact]) -> int:
        """How many were new and were taken. Raises Unreachable when the collector does not take them, or is none."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        new = [fact for fact in facts if (fact.trace, fact.id) not in self._sent]
        before = self.rejected
        for at in range(0, len(new), BATCH):
            part = new[at : at + BATCH]
            self._asked = len(part)
            done = self._exporter.export([_span(fact) for fact in part])
            if self._odd:
                raise Unreachable(f"OTEL_EXPORTER_OTLP_ENDPOINT names no collector: it answered with {self._odd}")
            if done is not SpanExportResult.SUCCESS:
                raise Unreachable("the collector that OTEL_EXPORTER_OTLP_ENDPOINT names does not take the spans")
            self._sent |= {(fact.trace, fact.id) for fact in part}
        return len(new) - (self.rejected - before)

    def _answered(self, answer: Any, *_: object, **__: object) -> None:
        """Looks into an answer: with status 200 a collector may reject spans, and any web server gives a page."""
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        if answer.status_code != 200:
            return
        try:
            told = ExportTraceServiceResponse.FromString(answer.content).partial_success
        except DecodeError:
            self._odd = answer.headers.get("Content-Type", "").partition(";")[0][:80] or "what is not OTLP"
            return
        self.rejected += min(told.rejected_spans, self._asked)
        self.why = told.error_message or self.why


def switched_off(environ: Mapping[str, str]) -> str:
    """The variable of OpenTelemetry that says that no spans are to be sent; "" where none does."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED"
    return "OTEL_TRACES_EXPORTER" if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none" else ""


def _span(fact: SpanFact) -> Any:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    from launcher.version import __version__

    def context(span: int) -> SpanContext:
        return SpanContext(fact.trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        name=fact.name,
        context=context(fact.id),
        parent=context(fact.parent) if fact.parent is not None else None,
        resource=Resource({"service.name": "slipway", "service.version": __version__}),
        attributes=fact.attributes,
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, fact.fault) if fact.fault else Status(StatusCode.OK),
        start_time=round(fact.start * 1e9),
        end_time=round(fact.end * 1e9),
        instrumentation_scope=InstrumentationScope("slipway", __version__),
    )
