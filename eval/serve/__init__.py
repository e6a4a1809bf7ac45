"""Desktops for other programs: one model of a session, and a thin face for each protocol (`python -m eval.serve`)."""
