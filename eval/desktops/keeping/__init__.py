"""The keeper of a desktop: a process of its own that starts, watches and ends everything that belongs to one desktop.

It runs with the standard library alone, so that it starts in hundredths of a second: nothing here imports anything else
of this package. eval.desktops.session starts it and talks to it.
"""
