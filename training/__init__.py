"""Trains agents from episodes: a package per method, and the packages that the methods share.

options     the configuration fields that all trainers share
data        from recordings to samples and preference pairs
memory      estimates of a training's device memory
common      code that all trainers share: command, loading and saving, reporting, evaluation during training
sft, dpo, reward, grpo, rl  a package per method, each with a command of its name
rewards     reward functions for GRPO
weights     model folders without training: merge a LoRA, export for a server, make a tiny model

The modules merge, export, plan, tiny and make_episodes only give a command its name.
"""
