"""End states of linux-desktop's tasks, by an author who saw the instructions and the start states only (see `kit`)."""
