"""Results over runs: stats (formulas), read (verified outputs), table (one row per metric), compare (paired)."""
