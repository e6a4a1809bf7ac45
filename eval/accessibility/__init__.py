"""Accessibility trees: what programs tell of their windows (`tree`), the words of AT-SPI (`names`), the form in which
OSWorld's server prints them (`osworld`), the text that prompts show (`told`), and marks made of them (`marks`).

`eval.desktops.trees` reads them from a running desktop; nothing here needs one.
"""
