# One entry for people and CI. The environment lies in .venv, tools built from source in .tools.
