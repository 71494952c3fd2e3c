"""transformers' `apply_chat_template` on the conversations of `bench/rendering.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/chat_templates.py FOLDER CONVERSATIONS.json ROUNDS

prints one JSON line: milliseconds of CPU, and the token ids. FOLDER has a tokenizer.json and a chat_template.jinja.
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
    tokenizer.chat_template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    results, ids = {}, {}
    for turns, messages in conversations.items():
        spent = []
        for _ in range(rounds):
            start = time.process_time()
            ids[turns] = list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))
            spent.append(time.process_time() - start)
        results[turns] = {"cpu": round(min(spent) * 1e3, 3), "tokens": len(ids[turns])}
    print(json.dumps({"version": transformers.__version__, "results": results, "ids": ids}))


main()
