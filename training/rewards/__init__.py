"""Rewards of sampled answers, by name and weight: `rewards: [{name: inside_box}, {name: "my.module:fn", weight: 0.2}]`.

A reward function takes a list of Attempts and gives one number for each, or None for an attempt that it could not judge
because something around it broke (a judge's server is gone). See `base.RewardFunction`.
"""

from training.rewards.base import Attempt, RewardFunction
from training.rewards.loading import Reward, RewardSpec, load
from training.rewards.scoring import Scores, score

__all__ = ["Attempt", "Reward", "RewardFunction", "RewardSpec", "Scores", "load", "score"]
