"""Files and flags -> checked jobs."""
