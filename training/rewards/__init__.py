"""Rewards of sampled answers, by name and weight: `rewards: [{name: inside_box}, {name: "my.module:fn", weight: 0.2}]`.

A reward function takes a list of SampledAnswers and gives one number for each, or None for an answer that it could not
judge because something around it broke (a judge's server is gone). See `base.RewardFunction`.
"""

from training.rewards.base import RewardFunction, SampledAnswer
from training.rewards.loading import Reward, RewardSpec, load
from training.rewards.scoring import Scores, score

__all__ = ["Reward", "RewardFunction", "RewardSpec", "SampledAnswer", "Scores", "load", "score"]
