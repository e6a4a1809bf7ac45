"""Recorded episodes and their files (`episode`, `answers`), images opened when used (`images`), lines (`jsonl`)."""

from eval.episodes.answers import TokenUsage, ToolCall
from eval.episodes.episode import (
    MARKER,
    READ_VERSIONS,
    SCHEMA_VERSION,
    STEPS,
    Episode,
    EpisodeError,
    EpisodeWriter,
    Step,
    episode_tree,
    frame_name,
    is_complete,
    iter_episodes,
    read_episode,
    tree_name,
    write_episode,
)

__all__ = [
    "MARKER",
    "READ_VERSIONS",
    "SCHEMA_VERSION",
    "STEPS",
    "Episode",
    "EpisodeError",
    "EpisodeWriter",
    "Step",
    "TokenUsage",
    "ToolCall",
    "episode_tree",
    "frame_name",
    "is_complete",
    "iter_episodes",
    "read_episode",
    "tree_name",
    "write_episode",
]
