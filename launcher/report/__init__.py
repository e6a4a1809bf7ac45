"""One self-contained HTML page: collect (from the store), svg (curves), episodes (replays), page (HTML)."""
