"""Views for notebooks: runs, and rollouts with who tried what."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

RUNS = """
CREATE VIEW v_runs AS
SELECT stores.url AS store, runs.run, runs.name, runs.group_name, runs.state, runs.reason, runs.backend,
       runs.attempts, runs.step, runs.total, runs.created, runs.started, runs.ended, runs.running, runs.gpus
FROM runs JOIN stores ON stores.id = runs.store_id
"""
ROLLOUTS = """
CREATE VIEW v_rollouts AS
SELECT rollouts.id AS rollout, stores.url AS store, runs.run, runs.name,
       CASE WHEN groups.baseline_id IS NOT NULL THEN 'baseline' WHEN groups.eval_id IS NOT NULL THEN 'eval'
            ELSE 'training' END AS part,
       COALESCE(evals.agent, baselines.agent, '') AS agent,
       environments.benchmark, environments.version, tasks.task, rollouts.seed, rollouts.outcome, rollouts.success,
       rollouts.score, rollouts.failure, rollouts.error, rollouts.turns, rollouts.seconds, rollouts.cost
FROM rollouts
JOIN runs ON runs.id = rollouts.run_id
JOIN stores ON stores.id = runs.store_id
JOIN groups ON groups.id = rollouts.group_id
JOIN tasks ON tasks.id = groups.task_id
JOIN environments ON environments.id = tasks.environment_id
LEFT JOIN evals ON evals.id = groups.eval_id
LEFT JOIN baselines ON baselines.id = groups.baseline_id
"""


def upgrade() -> None:
    op.execute(RUNS)
    op.execute(ROLLOUTS)


def downgrade() -> None:
    op.execute("DROP VIEW v_rollouts")
    op.execute("DROP VIEW v_runs")
