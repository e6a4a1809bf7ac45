"""Strict configuration (`strict`), its `--help` (`help`), and what a run tells about its progress (`progress`)."""

from eval.config.strict import (
    EXIT_CONFIG,
    Config,
    ConfigError,
    ResumeError,
    convert,
    exit_code,
    load,
    need,
    output_folder,
    read,
    results_folder,
    run,
)

__all__ = [
    "EXIT_CONFIG",
    "Config",
    "ConfigError",
    "ResumeError",
    "convert",
    "exit_code",
    "load",
    "need",
    "output_folder",
    "read",
    "results_folder",
    "run",
]
