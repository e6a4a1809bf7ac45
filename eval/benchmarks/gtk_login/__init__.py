"""The login form of `eval.environments.login` as a program in GTK 3 on a real desktop. See `environment`."""
