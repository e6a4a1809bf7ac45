"""Small forms in GTK 3 on a real desktop: tasks that a tiny model can learn on a CPU. See `environment`."""
