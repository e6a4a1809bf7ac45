"""What an evaluation writes of each task (`task_record`), why one failed (`failures`), which results of an earlier run
stand (`earlier_results`), and which episodes are kept with their pictures (`kept_episodes`)."""
