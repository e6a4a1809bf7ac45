"""How many clusters are behind an interval, which runs train, and indexes for the pages of groups and trainings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

METHODS = ("sft", "dpo", "reward", "grpo", "rl")


def upgrade() -> None:
    op.add_column("eval_metrics", sa.Column("clusters", sa.BigInteger()))
    op.add_column("runs", sa.Column("trains", sa.Text(), nullable=False, server_default=""))
    for method in METHODS:
        op.execute(
            sa.text("UPDATE runs SET trains = :method WHERE job LIKE :word").bindparams(
                method=method, word=f'%"training.{method}"%'
            )
        )
    op.create_index("ix_runs_group_name", "runs", ["group_name"])
    op.create_index("ix_runs_trains", "runs", ["trains"])
    # the figures are read again from the stores; tries that are there are not
    op.execute("UPDATE outputs SET ingested = '' WHERE run_id IN (SELECT run_id FROM eval_metrics)")
    op.execute("UPDATE runs SET complete = 0 WHERE id IN (SELECT run_id FROM eval_metrics)")


def downgrade() -> None:
    op.drop_index("ix_runs_trains", "runs")
    op.drop_index("ix_runs_group_name", "runs")
    op.drop_column("runs", "trains")
    op.drop_column("eval_metrics", "clusters")
