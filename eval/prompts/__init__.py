"""Prompts of training and evaluation (`builder`, `config`), with demonstrations and with marks on
screenshots."""

from eval.prompts.builder import PromptBuilder
from eval.prompts.config import PromptConfig
from eval.prompts.messages import Message, PastStep

__all__ = ["Message", "PastStep", "PromptBuilder", "PromptConfig"]
