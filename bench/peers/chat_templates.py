"""transformers' `apply_chat_template` on the conversations of `bench/rendering.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/chat_templates.py FOLDER CONVERSATIONS.json ROUNDS [TEMPLATE]

prints one JSON line: milliseconds of CPU, and the token ids. FOLDER has a tokenizer.json and a chat_template.jinja,
which TEMPLATE takes the place of. For each number of turns CONVERSATIONS has a list of conversations, which count together.
"""

import json
import sys
import time
from pathlib import Path

import transformers


def main():
    folder, conversations, rounds = (
        Path(sys.argv[1]),
        json.loads(Path(sys.argv[2]).read_text()),
        int(sys.argv[3]),
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    template = Path(sys.argv[4]) if len(sys.argv) > 4 else folder / "chat_template.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    results, ids = {}, {}
    for turns, several in conversations.items():
        spent = []
        for _ in range(rounds):
            start = time.process_time()
            ids[turns] = [
                list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))
                for messages in several
            ]
            spent.append(time.process_time() - start)
        results[turns] = {"cpu": round(min(spent) * 1e3, 3), "tokens": sum(map(len, ids[turns]))}
    print(json.dumps({"version": transformers.__version__, "results": results, "ids": ids}))


main()
