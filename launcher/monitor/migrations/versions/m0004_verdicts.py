"""What people say of rollouts, and a view of it for notebooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

VERDICTS = """
CREATE VIEW v_verdicts AS
SELECT stores.url AS store, verdicts.run, verdicts.place, rollouts.id AS rollout, verdicts.person, verdicts.at,
       verdicts.success, verdicts.reason, verdicts.blind, verdicts.checker, rollouts.success AS checked,
       CASE WHEN EXISTS (
           SELECT 1 FROM verdicts AS later
           WHERE later.store_id = verdicts.store_id AND later.run = verdicts.run AND later.place = verdicts.place
             AND later.person = verdicts.person AND later.name > verdicts.name
       ) THEN 0 ELSE 1 END AS counts
FROM verdicts
JOIN stores ON stores.id = verdicts.store_id
LEFT JOIN runs ON runs.store_id = verdicts.store_id AND runs.run = verdicts.run
LEFT JOIN rollouts ON rollouts.run_id = runs.id AND rollouts.place = verdicts.place
"""


def upgrade() -> None:
    op.create_table(
        "verdicts",
        sa.Column(
            "store_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), server_default="", nullable=False),
        sa.Column("success", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("person", sa.Text(), server_default="", nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=True),
        sa.Column("blind", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("checker", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["store_id"], ["stores.id"], name=op.f("fk_verdicts_store_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store_id", "run", "name", name=op.f("pk_verdicts")),
    )
    op.execute(VERDICTS)


def downgrade() -> None:
    op.execute("DROP VIEW v_verdicts")
    op.drop_table("verdicts")
