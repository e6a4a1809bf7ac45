"""Notifications about runs: events (what is told), ledger (who tells it, once), channels (how it is sent)."""
