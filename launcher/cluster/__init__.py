"""A cluster on this machine for trying things out: kind, the tree in k8s/, a local store.

tools      the programs it needs, found and called; what they say when they fail
place      the files of one cluster on this machine, and the folder k8s/ it is made from
plan       pure texts: the overlay that is applied, the secrets, the environment and the profile for the user
up         makes it, step by step; every step asks first, so that a second run completes the first
look       what there is: status
"""
