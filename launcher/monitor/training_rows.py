"""What a training tells, as rows of the database. Pure: the same records give the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from launcher.monitor.episodes import MOST_ACTIONS, Rows
from launcher.monitor.rows import Row, number, text, whole
from launcher.monitor.tables import identify
from launcher.monitor.training_reader import OWNERS, GroupKey, ReportedRollout, ReportedTraining, StepKey, file_identity
from launcher.report.replays import action_text, points
from launcher.results.read import StoredOutput
from launcher.results.training_records import RlAction, RlGroup, RlObservation, RlTurn, RlValidation
from launcher.store.manifest import key_of


@dataclass(frozen=True)
class TrainingRows:
    """Makes the rows of one training. `told`: what is known of it when they are made."""

    run_id: int
    told: ReportedTraining

    @property
    def id(self) -> int:
        return identify("training", self.run_id)

    def training(self) -> Row:
        line = self.told.training
        return {
            "id": self.id,
            "run_id": self.run_id,
            "method": text(line.method),
            "name": text(line.name),
            "model": text(line.model),
            "config": _json(line.config) if line.config else "",
            "began": number(line.time or None),
        }

    def statuses(self) -> list[Row]:
        return [
            {
                "training_id": self.id,
                "number": index,
                "at": number(line.time or None),
                "status": text(line.status),
                "step": whole(line.step),
                "progress": number(line.progress),
                "reason": text(line.reason),
            }
            for index, line in enumerate(self.told.statuses)
        ]

    def owner(self, place: StepKey, environment: str, rows: Rows) -> tuple[str, int]:
        """(the column of a group that names it, its id); its row is added."""
        told = self.told.steps.get(place)
        figures = dict(told.metrics) if told is not None else {}
        common = {
            "at": number(told.time) if told is not None else None,
            "figures": text(msgspec.json.encode(figures, order="sorted").decode()),
        }
        table = OWNERS[place.phase]
        if table == "steps":
            key = identify("step", self.id, place.step)
            rows.share(table, {"id": key, "training_id": self.id, "number": place.step, **common})
            return "step_id", key
        made = self.environment(environment, rows)
        agent = f"policy after step {place.step}" if place.phase == "eval" else f"baseline at step {place.step}"
        key = identify(table, self.run_id, agent, made)
        rows.share(
            table,
            {
                "id": key,
                "run_id": self.run_id,
                "agent": agent,
                "environment_id": made,
                "step": place.step,
                **common,
            },
        )
        return f"{place.phase}_id", key

    def environment(self, name: str, rows: Rows) -> int:
        benchmark = text(name)
        key = identify("environment", benchmark, "")
        return rows.share("environments", {"id": key, "benchmark": benchmark, "version": ""})

    def group(self, place: GroupKey, rows: Rows) -> int:
        line = self.told.groups.get(place) or RlGroup()
        environment = self.environment(line.environment, rows)
        task = text(line.task_id)
        key = identify("task", environment, task)
        rows.share("tasks", {"id": key, "environment_id": environment, "task": task})
        column, owner = self.owner(StepKey(place.phase, place.step), line.environment, rows)
        owners = {"step_id": None, "eval_id": None, "baseline_id": None, column: owner}
        return rows.share(
            "groups",
            {
                "id": identify("group", owner, "number", place.group),
                "task_id": key,
                **owners,
                "number": place.group,
                "seed": text(line.seed),
                "instruction": text(line.instruction),
                "dropped": text(line.dropped),
            },
        )

    def shared(self, places: Mapping[GroupKey, Any], steps: Mapping[StepKey, Any]) -> Rows:
        """The rows of groups, and of steps, evaluations and baselines that have none."""
        rows = Rows()
        rows.share("trainings", self.training())
        environments: dict[StepKey, str] = {}
        for group, line in self.told.groups.items():
            environments.setdefault(StepKey(group.phase, group.step), line.environment)
        for group in places:
            self.group(group, rows)
        for step in steps:
            if step in environments or step.phase == "train":
                self.owner(step, environments.get(step, ""), rows)
            else:
                self.owner(step, str(self.told.training.config.get("environment", "")), rows)
        return rows

    def rollout(self, output: StoredOutput, rollout: ReportedRollout, rows: Rows) -> None:
        """Adds the rows of one rollout."""
        rows.share("trainings", self.training())
        group = self.group(rollout.group, rows)
        line = rollout.line
        told = self.told.groups.get(rollout.group) or RlGroup()
        sizes = [part.size for part in rollout.parts if isinstance(part, RlObservation) and part.size is not None]
        judged = [part for part in rollout.parts if isinstance(part, RlValidation)]
        outcome = (
            "infra"
            if line.outcome != "scored"
            else "not judged"
            if line.success is None
            else "solved"
            if line.success
            else "failed"
        )
        rows.own.setdefault("rollouts", []).append(
            {
                "id": rollout.id,
                "run_id": self.run_id,
                "group_id": group,
                "seed": text(told.seed),
                "instruction": text(told.instruction),
                "outcome": outcome,
                "success": None if line.success is None or outcome == "infra" else int(line.success),
                "score": next((number(one.score) for one in judged if one.score is not None), None),
                "error": text(line.error),
                "failure": "",
                "turns": whole(line.turns),
                "parse_errors": whole(line.errors.get("parse", 0)),
                "seconds": number(line.seconds),
                "cost": None,
                "folder": text(line.episode),
                "width": whole(sizes[0][0]) if sizes else None,
                "height": whole(sizes[0][1]) if sizes else None,
                "digest": digest_of(output, rollout, told),
                "place": rollout.place.name,
                "number": rollout.place.rollout,
                "total": number(line.total),
                "parts": _json({name: number(value) for name, value in line.parts.items()}),
                "tokens": whole(line.tokens),
                "version": whole(line.version),
                "at": number(line.time or None),
            }
        )
        _validations(self.environment(told.environment, rows), rollout, judged, rows)
        _turns(output, rollout, rows.own)


def digest_of(output: StoredOutput, rollout: ReportedRollout, group: RlGroup) -> str:
    """Of everything that the rows of a rollout are made of."""
    pictures = [file_identity(output, path) for path in rollout.pictures.values()]
    told = [output.prefix, group.environment, group.task_id, group.seed, group.instruction, pictures]
    body = msgspec.json.encode([told, rollout.line, [(part.KIND, part) for part in rollout.parts]])
    return hashlib.sha256(body).hexdigest()


def _validations(environment: int, rollout: ReportedRollout, judged: Sequence[RlValidation], rows: Rows) -> None:
    found: dict[int, Row] = {}
    for one in judged:
        kind = text(one.by)
        key = rows.share(
            "validators",
            {"id": identify("validator", environment, kind), "environment_id": environment, "kind": kind},
        )
        found[key] = {
            "rollout_id": rollout.id,
            "validator_id": key,
            "success": None if one.success is None else int(one.success),
            "score": number(one.score),
            "rule": text(one.error),
            "evidence": text(msgspec.json.encode(one.detail, order="sorted").decode()) if one.detail else "",
        }
    rows.own.setdefault("validations", []).extend(found.values())


def _turns(output: StoredOutput, rollout: ReportedRollout, own: dict[str, list[Row]]) -> None:
    turns: dict[int, Row] = {}
    actions: dict[tuple[int, int], Row] = {}
    observations: dict[int, Row] = {}
    for part in rollout.parts:
        if isinstance(part, RlTurn):
            turns[part.turn] = _turn(rollout.id, part)
        elif isinstance(part, RlAction) and part.number < MOST_ACTIONS:
            actions[part.turn, part.number] = {
                "rollout_id": rollout.id,
                "turn": part.turn,
                "number": part.number,
                "kind": text(part.action.get("type"), 100),
                "words": text(action_text(part.action)),
                **points([part.action]),
                "refused": text(part.refused),
            }
    for turn, path in rollout.pictures.items():
        entry = output.manifest.files.get(path)
        if entry is not None:  # a name in a line is no more than a claim
            observations[turn] = {
                "rollout_id": rollout.id,
                "turn": turn,
                "key": key_of(output.prefix, path, entry.at),
                "sha256": entry.sha256,
                "bytes": entry.size,
            }
    own.setdefault("turns", []).extend(turns.values())
    own.setdefault("actions", []).extend(actions.values())
    own.setdefault("observations", []).extend(observations.values())


def _turn(key: int, part: RlTurn) -> Row:
    tokens = ""
    if part.logprobs:
        texts = part.texts if part.texts is not None and len(part.texts) == len(part.logprobs) else None
        named = texts or [str(token) for token in part.token_ids or ()]
        if len(named) == len(part.logprobs):
            unsure = part.entropies or ()
            known = unsure if len(unsure) == len(named) else [None] * len(named)
            told = zip(named, part.logprobs, known, strict=True)
            tokens = _json([[one, number(likely), number(entropy)] for one, likely, entropy in told])
    return {
        "rollout_id": key,
        "number": part.turn,
        "answer": text(part.response),
        "thought": text(part.thought),
        "error": text(part.parse_error),
        "input_tokens": None,
        "output_tokens": whole(part.tokens),
        "advantage": number(part.advantage),
        "entropy": number(part.entropy),
        "masked": text(part.masked),
        "tokens": tokens,
    }


LONGEST_JSON: Final = 1 << 20  # characters; a longer one is left out, since half of it is none


def _json(value: object) -> str:
    made = text(msgspec.json.encode(value, order="sorted").decode(), LONGEST_JSON + 1)
    return made if len(made) <= LONGEST_JSON else ""
