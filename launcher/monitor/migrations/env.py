"""What Alembic runs before the steps from one version to the next. The caller gives the connection and commits."""

from __future__ import annotations

from alembic import context

from launcher.monitor.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
context.run_migrations()
