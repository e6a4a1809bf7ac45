"""The versions of the monitor's database, for Alembic."""
