"""The tables of the monitor's database. docs/reference/monitor-database.md describes them for those who query them.

Ids are made from what a row stands for (`identify`), so the same records give the same rows, in whatever order they
arrive and whoever reads them. Times are seconds since the epoch, texts that have a structure are JSON.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
METADATA: Final = MetaData(naming_convention=NAMES)
# SQLite calls every whole number INTEGER, and only that name makes the key the row's own number
ID: Final = BigInteger().with_variant(Integer(), "sqlite")


def identify(*parts: object) -> int:
    """The id of what `parts` name: 63 bits of a sha256. Among a hundred million rows the chance of a clash is below
    one in a thousand."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big") >> 1


def _id() -> Column[Any]:
    return Column("id", ID, primary_key=True, autoincrement=False)


def _of(table: str, column: str, *, key: bool = False, optional: bool = False) -> Column[Any]:
    """A reference to a row; the row's end ends this one."""
    foreign = ForeignKey(f"{table}.id", ondelete="CASCADE")
    return Column(column, ID, foreign, primary_key=key, nullable=optional, autoincrement=False)


def _text(name: str) -> Column[Any]:
    return Column(name, Text, nullable=False, server_default="")


def _number(name: str) -> Column[Any]:
    return Column(name, Float(53))


def _whole(name: str, *, key: bool = False) -> Column[Any]:
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _maybe_whole(name: str) -> Column[Any]:
    return Column(name, BigInteger)


stores = Table("stores", METADATA, _id(), Column("url", Text, nullable=False, unique=True))

runs = Table(
    "runs",
    METADATA,
    _id(),
    _of("stores", "store_id"),
    Column("run", Text, nullable=False),
    _text("name"),
    _text("state"),
    _text("backend"),
    _text("group_name"),
    _text("work"),
    _text("labels"),
    _whole("attempt"),
    _whole("attempts"),
    _text("phase"),
    _number("step"),
    _number("total"),
    _number("eta"),
    _text("message"),
    _maybe_whole("checkpoint"),
    _text("reason"),
    _text("detail"),
    _number("created"),
    _number("started"),
    _number("ended"),
    _number("seen"),
    _number("stale_after"),
    _number("running"),
    _maybe_whole("gpus"),
    _text("priced"),
    _text("held"),
    _text("machines"),
    _text("limits"),
    _text("source_run"),
    _maybe_whole("source_attempt"),
    _text("job"),
    _whole("deleted"),
    _whole("complete"),
    _text("digest"),
    _text("trains"),  # the method of a run whose command is a trainer of ours
    UniqueConstraint("store_id", "run"),
    CheckConstraint("complete IN (0, 1) AND deleted IN (0, 1)", name="flags"),
)
Index("ix_runs_created", runs.c.created)
Index("ix_runs_group_name", runs.c.group_name)
Index("ix_runs_trains", runs.c.trains)
Index("ix_runs_state_ended", runs.c.state, runs.c.ended)

attempts = Table(
    "attempts",
    METADATA,
    _of("runs", "run_id", key=True),
    _whole("number", key=True),
    _number("started"),
    _number("ended"),
    _text("reason"),
    _text("message"),
    _text("moved_to"),
    _text("outputs"),
)
members = Table(
    "members",
    METADATA,
    _of("runs", "run_id", key=True),
    _whole("attempt", key=True),
    Column("member", Text, primary_key=True),
    _text("host"),
    _text("phase"),
    _number("step"),
    _number("seen"),
    _text("reason"),
    _number("cpus"),
    _number("memory"),
    _number("gpu"),
    _number("gpu_memory"),
    _maybe_whole("log"),
)
status_history = Table(
    "status_history",
    METADATA,
    _of("runs", "run_id", key=True),
    _whole("number", key=True),
    _number("at"),
    _text("state"),
    _maybe_whole("attempt"),
    _text("reason"),
    _text("message"),
)
events = Table(
    "events",
    METADATA,
    _of("runs", "run_id", key=True),
    _whole("attempt", key=True),
    Column("writer", Text, primary_key=True),
    _whole("seq", key=True),
    _number("at"),
    _text("kind"),
    _text("message"),
    _text("fields"),
)
# tries to tell people of a run
notices = Table(
    "notices",
    METADATA,
    _of("runs", "run_id", key=True),
    Column("event", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    _whole("number", key=True),
    _text("key"),
    _text("way"),
    _text("text"),
    _number("at"),
    _number("ended"),
    _maybe_whole("sent"),
    _text("message"),
)
Index("ix_notices_at", notices.c.at)
checkpoints = Table(
    "checkpoints",
    METADATA,
    _of("runs", "run_id", key=True),
    _whole("attempt", key=True),
    _whole("step", key=True),
)
costs = Table(
    "costs",
    METADATA,
    _of("runs", "run_id", key=True),
    _whole("number", key=True),
    _number("started"),
    _number("seconds"),
    _whole("live"),
    _whole("turn"),
)
outputs = Table(
    "outputs",
    METADATA,
    _of("runs", "run_id", key=True),
    Column("name", Text, primary_key=True),
    _whole("attempt"),
    _text("key"),
    _whole("final"),
    _whole("files"),
    _whole("bytes"),
    _text("digest"),
    _text("ingested"),
    _text("problem"),
)
environments = Table(
    "environments",
    METADATA,
    _id(),
    Column("benchmark", Text, nullable=False),
    Column("version", Text, nullable=False),
    UniqueConstraint("benchmark", "version"),
)
validators = Table(
    "validators",
    METADATA,
    _id(),
    _of("environments", "environment_id"),
    Column("kind", Text, nullable=False),
    UniqueConstraint("environment_id", "kind"),
)
tasks = Table(
    "tasks",
    METADATA,
    _id(),
    _of("environments", "environment_id"),
    Column("task", Text, nullable=False),
    UniqueConstraint("environment_id", "task"),
)
trainings = Table(
    "trainings",
    METADATA,
    _id(),
    _of("runs", "run_id"),
    _text("method"),
    _text("name"),
    _text("model"),
    _text("config"),
    _number("began"),
    UniqueConstraint("run_id"),
)
training_statuses = Table(
    "training_statuses",
    METADATA,
    _of("trainings", "training_id", key=True),
    _whole("number", key=True),
    _number("at"),
    _text("status"),
    _maybe_whole("step"),
    _number("progress"),
    _text("reason"),
)
steps = Table(
    "steps",
    METADATA,
    _id(),
    _of("trainings", "training_id"),
    _whole("number"),
    _number("at"),
    _text("figures"),
    UniqueConstraint("training_id", "number"),
)
evals = Table(
    "evals",
    METADATA,
    _id(),
    _of("runs", "run_id"),
    Column("agent", Text, nullable=False),
    _of("environments", "environment_id"),
    _maybe_whole("step"),  # of a training that evaluates itself; so the next two
    _number("at"),
    _text("figures"),
    UniqueConstraint("run_id", "agent", "environment_id"),
)
baselines = Table(
    "baselines",
    METADATA,
    _id(),
    _of("runs", "run_id"),
    Column("agent", Text, nullable=False),
    _of("environments", "environment_id"),
    _maybe_whole("step"),
    _number("at"),
    _text("figures"),
    UniqueConstraint("run_id", "agent", "environment_id"),
)
eval_metrics = Table(
    "eval_metrics",
    METADATA,
    _of("runs", "run_id", key=True),
    _whole("number", key=True),
    _text("benchmark"),
    _text("agent"),
    _text("metric"),
    _number("value"),
    _number("low"),
    _number("high"),
    _maybe_whole("n"),
    _maybe_whole("infra"),
    _maybe_whole("clusters"),
)
# what people say of rollouts; one may be there before its rollout, and stays when that is deleted
verdicts = Table(
    "verdicts",
    METADATA,
    _of("stores", "store_id", key=True),
    Column("run", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    _text("place"),
    _maybe_whole("success"),
    _text("reason"),
    _text("person"),
    _number("at"),
    _whole("blind"),
    _maybe_whole("checker"),
)
# rollouts of the same task by the same agent
groups = Table(
    "groups",
    METADATA,
    _id(),
    _of("tasks", "task_id"),
    _of("steps", "step_id", optional=True),
    _of("evals", "eval_id", optional=True),
    _of("baselines", "baseline_id", optional=True),
    _maybe_whole("number"),  # of a training: its place in the step; so the next three
    _text("seed"),
    _text("instruction"),
    _text("dropped"),
    CheckConstraint(
        "(CASE WHEN step_id IS NULL THEN 0 ELSE 1 END) + (CASE WHEN eval_id IS NULL THEN 0 ELSE 1 END)"
        " + (CASE WHEN baseline_id IS NULL THEN 0 ELSE 1 END) = 1",
        name="one_owner",
    ),
)
for _column in (groups.c.task_id, groups.c.step_id, groups.c.eval_id, groups.c.baseline_id):
    Index(f"ix_groups_{_column.name}", _column)

rollouts = Table(
    "rollouts",
    METADATA,
    _id(),
    _of("runs", "run_id"),
    _of("groups", "group_id"),
    _text("seed"),
    _text("instruction"),
    _text("outcome"),
    _maybe_whole("success"),
    _number("score"),
    _text("error"),
    _text("failure"),
    _maybe_whole("turns"),
    _maybe_whole("parse_errors"),
    _number("seconds"),
    _number("cost"),
    _text("folder"),
    _maybe_whole("width"),
    _maybe_whole("height"),
    _text("digest"),
    _text("place"),
    _maybe_whole("number"),  # of a training: its place in the group; so the next five
    _number("total"),
    _text("parts"),
    _maybe_whole("tokens"),
    _maybe_whole("version"),
    _number("at"),
    CheckConstraint("outcome IN ('solved', 'failed', 'infra', 'not run', 'not judged')", name="outcome"),
    _text("programs"),  # of an evaluation's task, as the report names them
)
Index("ix_rollouts_group_id", rollouts.c.group_id)
Index(
    "ix_rollouts_run_id_number_success", rollouts.c.run_id, rollouts.c.number, rollouts.c.success
)  # counts need no row

# the keys of these begin with the rollout: its rows lie together
turns = Table(
    "turns",
    METADATA,
    _of("rollouts", "rollout_id", key=True),
    _whole("number", key=True),
    _text("answer"),
    _text("thought"),
    _text("error"),
    _maybe_whole("input_tokens"),
    _maybe_whole("output_tokens"),
    _number("advantage"),
    _number("entropy"),
    _text("masked"),
    _text("tokens"),
    sqlite_with_rowid=False,
)
actions = Table(
    "actions",
    METADATA,
    _of("rollouts", "rollout_id", key=True),
    _whole("turn", key=True),
    _whole("number", key=True),
    _text("kind"),
    _text("words"),
    _number("x"),
    _number("y"),
    _number("x2"),
    _number("y2"),
    _text("refused"),
    sqlite_with_rowid=False,
)
observations = Table(
    "observations",
    METADATA,
    _of("rollouts", "rollout_id", key=True),
    _whole("turn", key=True),
    Column("key", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    _whole("bytes"),
    sqlite_with_rowid=False,
)
validations = Table(
    "validations",
    METADATA,
    _of("rollouts", "rollout_id", key=True),
    _of("validators", "validator_id", key=True),
    _maybe_whole("success"),
    _number("score"),
    _text("rule"),
    _text("evidence"),
    sqlite_with_rowid=False,
)
