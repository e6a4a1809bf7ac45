"""Development sessions: session (starts, finds and stops them), watch and enter (what runs where the job would run)."""
