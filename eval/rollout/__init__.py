"""Rollouts of evaluation and of RL: many episodes at once, and which are kept (`loop`), one task (`task_run`), the
bounds (`limits`), several ranks (`rank_sharing`), and questions about single screens (`single_screens`)."""
