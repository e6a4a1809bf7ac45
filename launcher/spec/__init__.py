"""The job: what the user writes (schema), how it is read (load) and what it becomes (resolve).

`model` holds the resolved structures that every other part of the launcher reads.
"""
