"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint("benchmark", "version", name=op.f("uq_environments_benchmark_version")),
    )
    op.create_table(
        "stores",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stores")),
        sa.UniqueConstraint("url", name=op.f("uq_stores_url")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column(
            "store_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("backend", sa.Text(), server_default="", nullable=False),
        sa.Column("group_name", sa.Text(), server_default="", nullable=False),
        sa.Column("work", sa.Text(), server_default="", nullable=False),
        sa.Column("labels", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("phase", sa.Text(), server_default="", nullable=False),
        sa.Column("step", sa.Float(precision=53), nullable=True),
        sa.Column("total", sa.Float(precision=53), nullable=True),
        sa.Column("eta", sa.Float(precision=53), nullable=True),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("checkpoint", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.Column("created", sa.Float(precision=53), nullable=True),
        sa.Column("started", sa.Float(precision=53), nullable=True),
        sa.Column("ended", sa.Float(precision=53), nullable=True),
        sa.Column("seen", sa.Float(precision=53), nullable=True),
        sa.Column("stale_after", sa.Float(precision=53), nullable=True),
        sa.Column("running", sa.Float(precision=53), nullable=True),
        sa.Column("gpus", sa.BigInteger(), nullable=True),
        sa.Column("priced", sa.Text(), server_default="", nullable=False),
        sa.Column("held", sa.Text(), server_default="", nullable=False),
        sa.Column("machines", sa.Text(), server_default="", nullable=False),
        sa.Column("limits", sa.Text(), server_default="", nullable=False),
        sa.Column("source_run", sa.Text(), server_default="", nullable=False),
        sa.Column("source_attempt", sa.BigInteger(), nullable=True),
        sa.Column("job", sa.Text(), server_default="", nullable=False),
        sa.Column("deleted", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("complete", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint("complete IN (0, 1) AND deleted IN (0, 1)", name=op.f("ck_runs_flags")),
        sa.ForeignKeyConstraint(["store_id"], ["stores.id"], name=op.f("fk_runs_store_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("store_id", "run", name=op.f("uq_runs_store_id_run")),
    )
    op.create_index("ix_runs_created", "runs", ["created"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column(
            "environment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("task", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name=op.f("fk_tasks_environment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("environment_id", "task", name=op.f("uq_tasks_environment_id_task")),
    )
    op.create_table(
        "validators",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column(
            "environment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name=op.f("fk_validators_environment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_validators")),
        sa.UniqueConstraint("environment_id", "kind", name=op.f("uq_validators_environment_id_kind")),
    )
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("started", sa.Float(precision=53), nullable=True),
        sa.Column("ended", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("moved_to", sa.Text(), server_default="", nullable=False),
        sa.Column("outputs", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_attempts")),
    )
    op.create_table(
        "baselines",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column(
            "environment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name=op.f("fk_baselines_environment_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_baselines_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baselines")),
        sa.UniqueConstraint("run_id", "agent", "environment_id", name=op.f("uq_baselines_run_id_agent_environment_id")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_checkpoints_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "costs",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("started", sa.Float(precision=53), nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.Column("live", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("turn", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_costs_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_costs")),
    )
    op.create_table(
        "eval_metrics",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("benchmark", sa.Text(), server_default="", nullable=False),
        sa.Column("agent", sa.Text(), server_default="", nullable=False),
        sa.Column("metric", sa.Text(), server_default="", nullable=False),
        sa.Column("value", sa.Float(precision=53), nullable=True),
        sa.Column("low", sa.Float(precision=53), nullable=True),
        sa.Column("high", sa.Float(precision=53), nullable=True),
        sa.Column("n", sa.BigInteger(), nullable=True),
        sa.Column("infra", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_eval_metrics_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_eval_metrics")),
    )
    op.create_table(
        "evals",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column(
            "environment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name=op.f("fk_evals_environment_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_evals_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evals")),
        sa.UniqueConstraint("run_id", "agent", "environment_id", name=op.f("uq_evals_run_id_agent_environment_id")),
    )
    op.create_table(
        "events",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=True),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("fields", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_events_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "writer", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "members",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("member", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), server_default="", nullable=False),
        sa.Column("phase", sa.Text(), server_default="", nullable=False),
        sa.Column("step", sa.Float(precision=53), nullable=True),
        sa.Column("seen", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("cpus", sa.Float(precision=53), nullable=True),
        sa.Column("memory", sa.Float(precision=53), nullable=True),
        sa.Column("gpu", sa.Float(precision=53), nullable=True),
        sa.Column("gpu_memory", sa.Float(precision=53), nullable=True),
        sa.Column("log", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_members_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "member", name=op.f("pk_members")),
    )
    op.create_table(
        "outputs",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), server_default="", nullable=False),
        sa.Column("final", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("files", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), server_default="", nullable=False),
        sa.Column("ingested", sa.Text(), server_default="", nullable=False),
        sa.Column("problem", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_outputs_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_outputs")),
    )
    op.create_table(
        "status_history",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=True),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_status_history_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_status_history")),
    )
    op.create_table(
        "trainings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("method", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_trainings_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trainings")),
        sa.UniqueConstraint("run_id", name=op.f("uq_trainings_run_id")),
    )
    op.create_table(
        "steps",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column(
            "training_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=True),
        sa.Column("figures", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["trainings.id"], name=op.f("fk_steps_training_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("training_id", "number", name=op.f("uq_steps_training_id_number")),
    )
    op.create_table(
        "groups",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("task_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("step_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=True),
        sa.Column("eval_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=True),
        sa.Column(
            "baseline_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=True
        ),
        sa.CheckConstraint(
            "(CASE WHEN step_id IS NULL THEN 0 ELSE 1 END) + (CASE WHEN eval_id IS NULL THEN 0 ELSE 1 END)"
            " + (CASE WHEN baseline_id IS NULL THEN 0 ELSE 1 END) = 1",
            name=op.f("ck_groups_one_owner"),
        ),
        sa.ForeignKeyConstraint(
            ["baseline_id"], ["baselines.id"], name=op.f("fk_groups_baseline_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["eval_id"], ["evals.id"], name=op.f("fk_groups_eval_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_groups_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_groups_task_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
    )
    op.create_index("ix_groups_baseline_id", "groups", ["baseline_id"], unique=False)
    op.create_index("ix_groups_eval_id", "groups", ["eval_id"], unique=False)
    op.create_index("ix_groups_step_id", "groups", ["step_id"], unique=False)
    op.create_index("ix_groups_task_id", "groups", ["task_id"], unique=False)
    op.create_table(
        "rollouts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column(
            "group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("seed", sa.Text(), server_default="", nullable=False),
        sa.Column("instruction", sa.Text(), server_default="", nullable=False),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.Column("success", sa.BigInteger(), nullable=True),
        sa.Column("score", sa.Float(precision=53), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("failure", sa.Text(), server_default="", nullable=False),
        sa.Column("turns", sa.BigInteger(), nullable=True),
        sa.Column("parse_errors", sa.BigInteger(), nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.Column("cost", sa.Float(precision=53), nullable=True),
        sa.Column("folder", sa.Text(), server_default="", nullable=False),
        sa.Column("width", sa.BigInteger(), nullable=True),
        sa.Column("height", sa.BigInteger(), nullable=True),
        sa.Column("digest", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint("outcome IN ('solved', 'failed', 'infra', 'not judged')", name=op.f("ck_rollouts_outcome")),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_rollouts_group_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_rollouts_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
    )
    op.create_index("ix_rollouts_group_id", "rollouts", ["group_id"], unique=False)
    op.create_index("ix_rollouts_run_id", "rollouts", ["run_id"], unique=False)
    op.create_table(
        "actions",
        sa.Column(
            "rollout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("turn", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("words", sa.Text(), server_default="", nullable=False),
        sa.Column("x", sa.Float(precision=53), nullable=True),
        sa.Column("y", sa.Float(precision=53), nullable=True),
        sa.Column("x2", sa.Float(precision=53), nullable=True),
        sa.Column("y2", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["rollout_id"], ["rollouts.id"], name=op.f("fk_actions_rollout_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_id", "turn", "number", name=op.f("pk_actions")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "observations",
        sa.Column(
            "rollout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("turn", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_id"], ["rollouts.id"], name=op.f("fk_observations_rollout_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_id", "turn", name=op.f("pk_observations")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "turns",
        sa.Column(
            "rollout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("answer", sa.Text(), server_default="", nullable=False),
        sa.Column("thought", sa.Text(), server_default="", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollouts.id"], name=op.f("fk_turns_rollout_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rollout_id", "number", name=op.f("pk_turns")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "validations",
        sa.Column(
            "rollout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column(
            "validator_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("success", sa.BigInteger(), nullable=True),
        sa.Column("score", sa.Float(precision=53), nullable=True),
        sa.Column("rule", sa.Text(), server_default="", nullable=False),
        sa.Column("evidence", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_id"], ["rollouts.id"], name=op.f("fk_validations_rollout_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["validator_id"], ["validators.id"], name=op.f("fk_validations_validator_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_id", "validator_id", name=op.f("pk_validations")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("validations")
    op.drop_table("turns")
    op.drop_table("observations")
    op.drop_table("actions")
    op.drop_index("ix_rollouts_run_id", table_name="rollouts")
    op.drop_index("ix_rollouts_group_id", table_name="rollouts")
    op.drop_table("rollouts")
    op.drop_index("ix_groups_task_id", table_name="groups")
    op.drop_index("ix_groups_step_id", table_name="groups")
    op.drop_index("ix_groups_eval_id", table_name="groups")
    op.drop_index("ix_groups_baseline_id", table_name="groups")
    op.drop_table("groups")
    op.drop_table("steps")
    op.drop_table("trainings")
    op.drop_table("status_history")
    op.drop_table("outputs")
    op.drop_table("members")
    op.drop_table("events")
    op.drop_table("evals")
    op.drop_table("eval_metrics")
    op.drop_table("costs")
    op.drop_table("checkpoints")
    op.drop_table("baselines")
    op.drop_table("attempts")
    op.drop_table("validators")
    op.drop_table("tasks")
    op.drop_index("ix_runs_created", table_name="runs")
    op.drop_table("runs")
    op.drop_table("stores")
    op.drop_table("environments")
