"""The monitor: a live page over runs, trainings, evaluations and cost (`launcher monitor`), and the database behind it.

tables    the database: what is in it; migrations: its versions (Alembic)
database  opens it, brings it to this version, and writes units that two processes may write at once
rows      a run's records as rows (pure); episodes: the same for evaluations
ingest    follows stores into the database
server    the page

The database is a projection of the stores' records and never a second truth: it can be deleted at any time, and the
next start makes it again.
"""
