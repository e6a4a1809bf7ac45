"""What an evaluation writes of each task (`task_record`), why one failed (`failures`), and which results of an
earlier run stand (`earlier_results`)."""
