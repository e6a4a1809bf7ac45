"""A person at a desktop: their input is recorded and becomes actions (`action_gatherer`)."""
