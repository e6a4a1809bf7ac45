"""What a training by reinforcement tells: its steps, groups and rollouts. Results are read again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TEXT, WHOLE, NUMBER = "text", "whole", "number"
COLUMNS = (
    ("trainings", (("name", TEXT), ("model", TEXT), ("config", TEXT), ("began", NUMBER))),
    ("evals", (("step", WHOLE), ("at", NUMBER), ("figures", TEXT))),
    ("baselines", (("step", WHOLE), ("at", NUMBER), ("figures", TEXT))),
    ("groups", (("number", WHOLE), ("seed", TEXT), ("instruction", TEXT), ("dropped", TEXT))),
    (
        "rollouts",
        (
            ("place", TEXT),
            ("number", WHOLE),
            ("total", NUMBER),
            ("parts", TEXT),
            ("tokens", WHOLE),
            ("version", WHOLE),
            ("at", NUMBER),
        ),
    ),
    ("turns", (("advantage", NUMBER), ("entropy", NUMBER), ("masked", TEXT), ("tokens", TEXT))),
    ("actions", (("refused", TEXT),)),
)


def _column(name: str, kind: str) -> sa.Column[object]:
    if kind == TEXT:
        return sa.Column(name, sa.Text(), server_default="", nullable=False)
    return sa.Column(name, sa.BigInteger() if kind == WHOLE else sa.Float(precision=53), nullable=True)


def _again() -> None:
    """What was read of results without the new columns, or with them, is read once more."""
    op.execute("UPDATE rollouts SET digest = ''")
    op.execute("UPDATE outputs SET ingested = ''")
    op.execute("UPDATE runs SET complete = 0")


def upgrade() -> None:
    for table, columns in COLUMNS:
        for name, kind in columns:
            op.add_column(table, _column(name, kind))
    op.create_table(
        "training_statuses",
        sa.Column(
            "training_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=True),
        sa.Column("status", sa.Text(), server_default="", nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("progress", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["trainings.id"], name=op.f("fk_training_statuses_training_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("training_id", "number", name=op.f("pk_training_statuses")),
    )
    _again()


def downgrade() -> None:
    op.execute("DELETE FROM trainings")  # and what belongs to their steps
    op.execute("DELETE FROM evals WHERE step IS NOT NULL")
    op.execute("DELETE FROM baselines WHERE step IS NOT NULL")
    op.drop_table("training_statuses")
    for table, columns in reversed(COLUMNS):
        for name, _ in reversed(columns):
            op.drop_column(table, name)
    _again()
