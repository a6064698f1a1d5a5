"""Spillway: completes and scores large sets of prompts with language models that do not fit in memory."""

from spillway.answers import Completion, Score
from spillway.engine import Engine
from spillway.errors import RequestError, SpillwayError
from spillway.program import find_binary

__all__ = ["Completion", "Engine", "RequestError", "Score", "SpillwayError", "find_binary"]
