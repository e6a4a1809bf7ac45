"""A stand-in for Lambda Cloud: an HTTP server with state, faults and a clock of its own, in a process of its own.

cloud     the account: instances, capacity, quota, limits, the ledger of what it did and billed. No network, no threads
machines  an instance as a process group of this machine that runs the user data it was launched with
server    the HTTP API, and /admin for the test
running   starts and stops the server from a test

The API follows the published OpenAPI document of Lambda Cloud, version 1.10.0.
"""
