"""One rank's part in a run: claims an attempt, runs the command, ends the attempt."""
