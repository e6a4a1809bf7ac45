"""Recordings of openadapt-capture: `importer` makes episodes of a `database` of events and the frames of a `video`."""
