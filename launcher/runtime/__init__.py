"""The runtime: the process that every container starts with `python -m launcher.runtime`. It fetches the inputs, runs
the command, and writes logs, checkpoints and results into the store. It needs few dependencies, and neither training
nor eval.

run          the process, from the job to its exit code; member: one rank's part in an attempt
inputs       fetches inputs, verified; uploads: logs, metrics, checkpoints and outputs on their way to the store
beating      sends heartbeats and ends the command when the protocol says so
process      processes, signals, threads; secrets: their values, the store's credentials, masking
relay, renewing   programs of their own (`python -m`): a forwarded connection, newer credentials
"""
