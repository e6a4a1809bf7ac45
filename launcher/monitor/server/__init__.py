"""The monitor's server: pages made here, kept up to date by one stream of events for each browser.

security  who may ask: Host, Origin, the token; the headers of every answer
stream    tells browsers what changed
queries   what pages show, from the database; waiting: why runs wait, from their backends
logs, pictures, metrics, output_pages  what pages show from the store
live_desktops  desktops of running members
pages     the addresses; app: all of it together; serve: the process
"""
