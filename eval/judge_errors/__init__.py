"""Measures the errors of a judge that is a model: `python -m eval.judge_errors --config FILE`."""
