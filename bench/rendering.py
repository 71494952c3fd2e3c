"""What it costs to render a conversation for training, by its turns, as JSON on standard output: milliseconds of CPU.

    python bench/rendering.py [--model smollm2-135m] [--rounds 7] [--peers ENVIRONMENT] [--check]

evsys renders and encodes the conversation and gives each token its weight. With `--peers` transformers renders and encodes the same
conversation with `apply_chat_template`, without weights, in an environment that has it; the tokens must be equal. The least of several
rounds counts. `rewritten` is the same with a template that drops the thoughts of earlier turns, as that of Qwen3 does: each turn is then a
sequence of its own, and transformers renders the conversation up to each answer once.
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
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.resolve import load_renderer

TURNS = (1, 2, 5, 20, 80, 200, 1000)
"""Questions, each with its answer."""

REWRITTEN_TURNS = (1, 2, 5, 20, 80)
"""The same where the tokens grow with the square of the turns."""

THINKING = """\
{%- set ns = namespace(searching=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
{%- set index = (messages|length - 1) - loop.index0 %}
{%- if ns.searching and message.role == 'user' and not message.content.startswith('<tool_response>') %}
{%- set ns.searching = false %}
{%- set ns.last_query = index %}
{%- endif %}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == 'assistant' and loop.index0 > ns.last_query and (loop.last or message.reasoning_content) %}
{{- '<|im_start|>assistant\\n<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' + message.content + '<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
"""A template that looks for the last question and drops the thoughts before it."""

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
    over = [
        f"{name} {turns}"
        for name in ("times", "times_rewritten")
        for turns, found in document.get(name, {}).items()
        if found > BUDGET
    ]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(map(str, over))} turns")


def compared(model: str, rounds: int, peers: Path | None) -> dict:
    """Both sides, and how many times the one takes of the other."""
    folder = find_model(model).folder
    renderer = load_renderer(model)
    thinking = ChatTemplateRenderer(renderer.tokenizer, THINKING)
    results, tokens = rendered(renderer, TURNS, rounds)
    rewritten, sequences = rendered(thinking, REWRITTEN_TURNS, rounds)
    ours = {"results": results, "rewritten": rewritten}
    if peers is None:
        return {**ours, "peers": None}
    theirs = beside(peers, folder, rounds, {turns: [conversation(turns)] for turns in TURNS})
    prefixes = {turns: up_to_each_answer(conversation(turns)) for turns in REWRITTEN_TURNS}
    theirs_rewritten = beside(peers, folder, rounds, prefixes, THINKING)
    for own, other in ((tokens, theirs), (sequences, theirs_rewritten)):
        for turns, ids in other.pop("ids").items():
            if any(b[: len(a)] != a for a, b in zip(own[int(turns)], ids, strict=True)):
                sys.exit(f"transformers has other tokens for {turns} turns")
    return {
        **ours,
        "peers": {"transformers": theirs, "transformers_rewritten": theirs_rewritten},
        "times": times(results, theirs),
        "times_rewritten": times(rewritten, theirs_rewritten),
    }


def rendered(renderer: ChatTemplateRenderer, turns: tuple[int, ...], rounds: int) -> tuple[dict, dict]:
    """CPU and number of tokens, and the tokens of all sequences, by turns."""
    results, tokens = {}, {}
    for count in turns:
        messages = [Message(**fields) for fields in conversation(count)]
        spent = []
        for _ in range(rounds):
            start = time.process_time()
            sequences = renderer.render_training(messages)
            spent.append(time.process_time() - start)
        tokens[count] = [ids for ids, _ in sequences]
        results[count] = {"cpu": round(min(spent) * 1e3, 3), "tokens": sum(map(len, tokens[count]))}
    return results, tokens


def times(ours: dict, theirs: dict) -> dict[int, float]:
    """How many times our CPU is theirs."""
    return {
        turns: round(found["cpu"] / theirs["results"][str(turns)]["cpu"], 2) for turns, found in ours.items()
    }


def up_to_each_answer(messages: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """The conversation as it is at each answer."""
    return [messages[: place + 1] for place, message in enumerate(messages) if message["role"] == "assistant"]


def conversation(turns: int) -> list[dict[str, str]]:
    """Questions and answers of about 60 tokens each."""
    text = "Message {} says something about the weather in town {}, and asks a question about it. "
    return [
        {"role": role, "content": (text.format(turn, turn + 7) * 3).strip()}
        for turn in range(turns)
        for role in ("user", "assistant")
    ]


def beside(
    environment: Path, folder: Path, rounds: int, conversations: dict[int, list], template: str | None = None
) -> dict:
    """The same conversations by transformers, in a process of its own."""
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    script = Path(__file__).parent / "peers" / "chat_templates.py"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "conversations.json"
        path.write_text(json.dumps(conversations), encoding="utf-8")
        given = Path(scratch) / "template.jinja"
        if template is not None:
            given.write_text(template, encoding="utf-8")
        said = subprocess.run(
            [
                str(python),
                str(script),
                str(folder),
                str(path),
                str(rounds),
                *[str(given)] * (template is not None),
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return json.loads(said.stdout)


if __name__ == "__main__":
    main()
