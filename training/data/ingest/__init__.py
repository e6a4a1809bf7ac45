"""Recordings of any known format to episode folders: `python -m training.data ingest --config FILE [--out DIR]`.

An importer reads one format (`format:` of the configuration) and gives episodes one by one; `run.ingest` writes them
and the report. Three kinds of trouble, and what becomes of each:

- **Damage**: the source is not what it should be. A line that is no JSON, a database that is none or lacks a table, a
  video that does not open or stops early, a picture that is missing or broken, a point off the screen, an id that comes
  twice, a recording without steps or without a task. `on_bad_sample: fail` (the default) ends the work with one line
  and exit code 78; `on_bad_sample: skip` leaves out the smallest whole thing (the step where only that is hurt, else
  the recording), counts it by reason, and names the first places in the report.
- **Loss**: the source is fine, but no Action holds it or no frame belongs to it: code that is several actions, a
  function that no dialect knows, an event of an unknown name, a first step without a picture before it, what comes
  after the end, and what the configuration leaves out (incorrect or redundant steps). Always left out, always counted,
  and listed in the episode's metadata; never an error, and never turned into a click.
- **Configuration**: a folder that is not there or holds nothing of the format. One line, exit code 78.

Success that nobody judged stays None. Running again gives the same folders, byte for byte; an episode appears under its
name only when it is whole, so a run that was killed leaves none torn.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """See the package; imported late, so that a listing of the verbs stays quick."""
    from training.data.ingest.run import main as run

    return run(argv)
