"""A person at a desktop: their input is recorded (`input_recorder`) and becomes actions (`action_gatherer`)."""
