"""Tasks of other formats, as files of the environment osworld: `python -m eval.tasks import FORMAT SOURCE OUT`."""
