"""One self-contained HTML page: collect (from the store), metrics, replays, svg (charts), page, sections, parts."""
