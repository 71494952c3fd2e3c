"""Write data/: requests about music, the weather and travel.

No held-out request shares its wording with a training request.

python make_data.py
"""

import itertools
import json
import random
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 0

TRAINED = {
    "music": (
        "play some {music} for me",
        "put on the new {music} record",
        "skip this {music} song",
        "who sings this {music} track",
        "turn the {music} up a little",
        "add this {music} to my playlist",
    ),
    "weather": (
        "will it {weather} in {place} tomorrow",
        "is it going to {weather} tonight",
        "what is the forecast for {place}",
        "do I need a coat, will it {weather}",
        "how warm is it in {place} today",
        "how likely is it to {weather} at noon",
    ),
    "travel": (
        "book a {ride} to {place}",
        "when does the next {ride} to {place} leave",
        "find me a hotel near the station in {place}",
        "I have to change my {ride} to {place}",
        "how do I get to {place} by {ride}",
        "is there a cheap {ride} to {place} on Friday",
    ),
}
HELD_OUT = {
    "music": ("I would like to hear {music} now", "shuffle my favourite {music} albums"),
    "weather": ("should we expect it to {weather} over {place}", "tell me if it starts to {weather}"),
    "travel": ("reserve two seats on the {ride} for {place}", "what does a {ride} ticket to {place} cost"),
}
FILLERS = {
    "music": ("jazz", "rock", "folk", "piano", "opera", "soul"),
    "weather": ("rain", "snow", "hail", "storm"),
    "place": ("Rome", "Oslo", "Lima", "Cairo", "Quito", "Turin"),
    "ride": ("train", "flight", "bus", "ferry"),
}
TRAIN_OF_A_TOPIC, HELD_OUT_OF_A_TOPIC = 36, 12


def wordings(templates: tuple[str, ...]) -> list[str]:
    """Every template with every filler that fits it, each sentence once."""
    names = sorted(FILLERS)
    filled = itertools.product(*(FILLERS[name] for name in names))
    values = [dict(zip(names, chosen, strict=True)) for chosen in filled]
    return list(dict.fromkeys(template.format(**one) for template in templates for one in values))


def rows(topics: dict[str, tuple[str, ...]], of_a_topic: int) -> list[dict[str, str]]:
    """`of_a_topic` requests of each topic, shuffled."""
    rng = random.Random(SEED)
    drawn = [
        {"request": request, "topic": topic}
        for topic, templates in topics.items()
        for request in rng.sample(wordings(templates), of_a_topic)
    ]
    rng.shuffle(drawn)
    return drawn


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    parts = {
        "datasets/requests/v1/train.jsonl": rows(TRAINED, TRAIN_OF_A_TOPIC),
        "validation/held_out/tasks.jsonl": rows(HELD_OUT, HELD_OUT_OF_A_TOPIC),
    }
    return {
        name: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        for name, part in parts.items()
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")
