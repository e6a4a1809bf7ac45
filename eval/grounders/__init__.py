"""Who marks screens for Set-of-Marks: the accessibility tree, or a model that looks at the screenshot (`config`)."""
