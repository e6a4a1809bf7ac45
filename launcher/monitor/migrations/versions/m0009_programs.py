"""The programs that a task of an evaluation is about."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("rollouts", sa.Column("programs", sa.Text(), nullable=False, server_default=""))
    # the tries of evaluations are read again from the stores
    of_evaluations = (
        "SELECT id FROM groups WHERE eval_id IN (SELECT id FROM evals WHERE step IS NULL) OR baseline_id IS NOT NULL"
    )
    op.execute(f"UPDATE rollouts SET digest = '' WHERE group_id IN ({of_evaluations})")
    op.execute("UPDATE outputs SET ingested = '' WHERE run_id IN (SELECT run_id FROM eval_metrics)")
    op.execute("UPDATE runs SET complete = 0 WHERE id IN (SELECT run_id FROM eval_metrics)")


def downgrade() -> None:
    op.drop_column("rollouts", "programs")
