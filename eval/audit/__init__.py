"""Audits tasks by players that know nothing of the solution: `python -m eval.audit --config FILE`, with the file of
eval.run."""
