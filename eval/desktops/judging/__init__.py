"""What judges of desktops share: the home at the end, end states made on purpose, and ways to hack a reward."""
