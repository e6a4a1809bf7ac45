"""A cluster on this machine for trying things out: kind, the tree in k8s/ and a local store.

tools      finds and calls the programs it needs; reports their errors
place      the files of one cluster on this machine, and the folder k8s/ that it is made from
plan       the texts (pure): the overlay to apply, the secrets, the environment and the profile for the user
additions  the controllers that are installed from their projects' releases
readiness  whether a Deployment is ready (pure)
up         makes the cluster, step by step; every step does only what is missing, so a second run completes the first
look       the state of each part
"""
