"""The job: reads what the user writes and resolves it into runs.

values       YAML text -> plain values with their places in the file, and the types that they may have
check        the fields of a job, declared once; rules between them; $SLIPWAY_* variables
read         files and flags -> checked jobs: dotted paths and --set, the axes of a matrix, edges between jobs
resolve      checked jobs and a profile -> runs; where each value came from; how two jobs differ
secrets      finds secrets in what the user writes
code         the overlay of a working tree; the hash of local software
images       the catalogue of images; prices: what machines cost
model        the resolved job, which every other part of the launcher reads
hashing      canonical JSON, the two hashes, names; turns: the backends of a job that names several
profile      slipway.yaml; backends: the table of all backends; reference: writes docs/reference/job.md
"""
