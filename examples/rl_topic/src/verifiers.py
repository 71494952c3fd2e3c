"""Whether an answer names the right topic and no other."""

import re

from evsys_sdk import register_verifier

TOPICS = ("music", "weather", "travel")


@register_verifier("only_topic")
def only_topic(model_output, expected, params):
    """1 if the right topic is the only one named, so an answer that lists all three gets 0."""
    words = set(re.findall(r"[a-z]+", model_output.lower()))
    return float({topic for topic in TOPICS if topic in words} == {expected})
