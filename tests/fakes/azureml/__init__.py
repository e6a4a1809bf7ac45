"""A stand-in for Azure, as far as Azure ML's SDK asks it: logins, the resource manager and one workspace.

cloud         the workspace: jobs, environments, computes, faults and a ledger; its clock is an argument
instances     compute instances that are made, stopped when idle, and deleted
answers       what a request is answered, whatever carries it
nodes         the nodes of a job as process groups of this machine
certificates  an authority of its own, for TLS
server        a proxy that answers for Azure's hosts itself and refuses all others, and /admin
running       starts it from a test

Written after azure-ai-ml 1.35.2 (which requests it sends) and public descriptions of the service; nothing here was
compared with the service itself.
"""
