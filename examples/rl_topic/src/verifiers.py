"""Whether an answer names one topic, and the right one."""

import re

from evsys_sdk import register_verifier

TOPICS = ("music", "weather", "travel")


@register_verifier("only_topic")
def only_topic(model_output, expected, params):
    """1 where the answer has the right word and none of the others: an answer that lists them all has guessed nothing."""
    words = set(re.findall(r"[a-z]+", model_output.lower()))
    return float({topic for topic in TOPICS if topic in words} == {expected})
