"""Long tasks: chains of the templates of linux-desktop, with events in the middle and a user who answers."""
