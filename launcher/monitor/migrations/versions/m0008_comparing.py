"""How many clusters are behind an interval, and an index for the page of a group."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("eval_metrics", sa.Column("clusters", sa.BigInteger()))
    op.create_index("ix_runs_group_name", "runs", ["group_name"])
    # the figures are read again from the stores; tries that are there are not
    op.execute("UPDATE outputs SET ingested = '' WHERE run_id IN (SELECT run_id FROM eval_metrics)")
    op.execute("UPDATE runs SET complete = 0 WHERE id IN (SELECT run_id FROM eval_metrics)")


def downgrade() -> None:
    op.drop_index("ix_runs_group_name", "runs")
    op.drop_column("eval_metrics", "clusters")
