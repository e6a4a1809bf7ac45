"""Web applications of tasks, with the standard library alone: `app` is what each of them is, `serving` runs one."""
