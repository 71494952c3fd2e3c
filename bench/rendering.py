"""What it costs to render a conversation for training, by its turns, as JSON on standard output: milliseconds of CPU.

    python bench/rendering.py [--model smollm2-135m] [--rounds 7] [--peers ENVIRONMENT] [--check]

evsys renders and encodes the conversation and gives each token its weight. With `--peers` transformers renders and encodes the same
conversation with `apply_chat_template`, without weights, in an environment that has it; the tokens must be equal. The least of several
rounds counts.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from evsys.errors import ConfigError
from evsys.types import Message
from evsys_runtime.rendering.cache import find_model
from evsys_runtime.rendering.resolve import load_renderer

TURNS = (1, 2, 5, 20, 80, 200, 1000)
"""Questions, each with its answer."""

BUDGET = 2.0
"""Times the CPU of transformers."""


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2-135m", help="a fetched model, or a folder")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (the least counts)")
    parser.add_argument("--peers", type=Path, help="an environment that has transformers")
    parser.add_argument("--check", action="store_true", help="end with 1 if the budget is exceeded")
    options = parser.parse_args()
    document = {
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "unit": "milliseconds of CPU a conversation",
        "budget": f"{BUDGET:g} times transformers",
    }
    try:
        document |= compared(options.model, options.rounds, options.peers)
    except ConfigError as error:
        document["skipped"] = str(error)
    print(json.dumps(document, indent=2))
    over = [turns for turns, found in document.get("times", {}).items() if found > BUDGET]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(map(str, over))} turns")


def compared(model: str, rounds: int, peers: Path | None) -> dict:
    """Both sides, and how many times the one takes of the other."""
    folder = find_model(model).folder
    renderer = load_renderer(model)
    results, tokens = {}, {}
    for turns in TURNS:
        messages = [Message(**fields) for fields in conversation(turns)]
        spent = []
        for _ in range(rounds):
            start = time.process_time()
            [(tokens[turns], _)] = renderer.render_training(messages)
            spent.append(time.process_time() - start)
        results[turns] = {"cpu": round(min(spent) * 1e3, 3), "tokens": len(tokens[turns])}
    if peers is None:
        return {"results": results, "peers": None}
    theirs = beside(peers, folder, rounds)
    for turns, ids in theirs.pop("ids").items():
        if ids[: len(tokens[int(turns)])] != tokens[int(turns)]:
            sys.exit(f"transformers has other tokens for {turns} turns")
    times = {turns: round(results[turns]["cpu"] / theirs["results"][str(turns)]["cpu"], 2) for turns in TURNS}
    return {"results": results, "peers": {"transformers": theirs}, "times": times}


def conversation(turns: int) -> list[dict[str, str]]:
    """Questions and answers of about 60 tokens each."""
    text = "Message {} says something about the weather in town {}, and asks a question about it. "
    return [
        {"role": role, "content": (text.format(turn, turn + 7) * 3).strip()}
        for turn in range(turns)
        for role in ("user", "assistant")
    ]


def beside(environment: Path, folder: Path, rounds: int) -> dict:
    """The same conversations by transformers, in a process of its own."""
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    script = Path(__file__).parent / "peers" / "chat_templates.py"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "conversations.json"
        path.write_text(json.dumps({turns: conversation(turns) for turns in TURNS}), encoding="utf-8")
        said = subprocess.run(
            [str(python), str(script), str(folder), str(path), str(rounds)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return json.loads(said.stdout)


if __name__ == "__main__":
    main()
