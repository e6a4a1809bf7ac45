"""Tasks that cannot run on a machine are an outcome of their own.

SQLite cannot change a constraint, and another table in its place would take the rows that belong to rollouts with it.
So its text is changed where it is kept, as https://www.sqlite.org/lang_altertable.html, "Making Other Kinds Of Table
Schema Changes", says for constraints.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

BEFORE = "outcome IN ('solved', 'failed', 'infra', 'not judged')"
AFTER = "outcome IN ('solved', 'failed', 'infra', 'not run', 'not judged')"


def upgrade() -> None:
    change(BEFORE, AFTER)


def downgrade() -> None:
    op.execute("UPDATE rollouts SET outcome = 'infra' WHERE outcome = 'not run'")
    change(AFTER, BEFORE)


def change(before: str, after: str) -> None:
    """In place of one constraint the other."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        op.drop_constraint(op.f("ck_rollouts_outcome"), "rollouts", type_="check")
        op.create_check_constraint(op.f("ck_rollouts_outcome"), "rollouts", after)
        return
    version = connection.execute(sa.text("PRAGMA schema_version")).scalar_one()
    connection.execute(sa.text("PRAGMA writable_schema = ON"))
    words = {"before": before, "after": after}
    changed = connection.execute(
        sa.text(
            "UPDATE sqlite_schema SET sql = replace(sql, :before, :after) "
            "WHERE type = 'table' AND name = 'rollouts' AND instr(sql, :before) > 0"
        ),
        words,
    )
    assert changed.rowcount == 1
    connection.execute(sa.text(f"PRAGMA schema_version = {version + 1}"))
    connection.execute(sa.text("PRAGMA writable_schema = OFF"))
