"""Accessibility trees: what programs tell of their windows (`tree`, also in the form in which OSWorld's server
prints them), the words of AT-SPI (`names`), the text that prompts show (`prompt_text`), what a person sees, and its
marks (`visible`).

`eval.desktops.trees` reads them from a running desktop; nothing here needs one.
"""
