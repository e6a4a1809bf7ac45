"""Our own benchmark `linux-desktop`: tasks on programs of Debian, drawn from templates.

What a template is: eval.benchmarks.linux_desktop.template. How to add one: docs/howto/benchmark.md.
"""
