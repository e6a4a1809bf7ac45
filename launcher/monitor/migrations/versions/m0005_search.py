"""The index of the search, where the database can have one, and indexes for the pages of many runs."""

from __future__ import annotations

from alembic import op

from launcher.monitor import search_index

revision = "0005"
down_revision = "0004"

INDEXES = (
    ("ix_runs_state_ended", "runs", ("state", "ended")),
    ("ix_rollouts_run_id_number_success", "rollouts", ("run_id", "number", "success")),
)


def upgrade() -> None:
    for name, table, columns in INDEXES:
        op.create_index(name, table, list(columns))
    op.drop_index("ix_rollouts_run_id", "rollouts")  # a part of the other
    search_index.make(op.get_bind())


def downgrade() -> None:
    search_index.drop(op.get_bind())
    op.create_index("ix_rollouts_run_id", "rollouts", ["run_id"])
    for name, table, _ in INDEXES:
        op.drop_index(name, table)
