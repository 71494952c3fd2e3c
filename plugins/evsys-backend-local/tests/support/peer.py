"""What other libraries compute, for `test_oracles`: runs in an environment of theirs.

    python peer.py JOBS.json FOLDER

does each job of the list and writes its arrays to `FOLDER/NAME.npz`. Texts and versions go to `FOLDER/NAME.json`.
The job `engine` alone takes evsys's sources along: its engine computes with torch there.
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: models lie in folders, nothing is looked up

import numpy as np


def load(job):
    """The model of a job in float32, under its adapter if it has one."""
    import torch
    from transformers import AutoModelForCausalLM

    extra = {"gguf_file": job["gguf"]} if "gguf" in job else {}
    model = AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=torch.float32, attn_implementation="eager", **extra
    )
    if job.get("adapter"):
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, job["adapter"], is_trainable=True)
    return model.eval()


def logits(job):
    """`logits` [T, vocab] of `tokens`."""
    import torch

    with torch.no_grad():
        return {"logits": load(job)(input_ids=torch.tensor([job["tokens"]])).logits[0].numpy()}


def gradients(job):
    """`logprobs` [T - 1] of each next token, and the gradients of -sum(weights * logprobs) by the adapter's names."""
    import torch

    model, tokens = load(job), torch.tensor(job["tokens"])
    table = torch.log_softmax(model(input_ids=tokens[None]).logits[0, :-1], -1)
    logprobs = table.gather(1, tokens[1:, None])[:, 0]
    (-(torch.tensor(job["weights"]) * logprobs).sum()).backward()
    found = {"logprobs": logprobs.detach().numpy()}
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            found[name.replace(".default", "")] = parameter.grad.numpy()
    return found


def make(job):
    """A random model (and, for `adapter`, a random adapter) as `save_pretrained` writes it."""
    import torch
    import transformers

    generator = torch.Generator().manual_seed(job["seed"])
    config = getattr(transformers, job["config_class"])(**job["config"])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name else 0.3 * noise)
    model = model.to(getattr(torch, job.get("dtype", "float32")))
    model.save_pretrained(job["model"], max_shard_size=job.get("max_shard_size", "5GB"))
    if "adapter" in job:
        import peft

        settings = peft.LoraConfig(task_type="CAUSAL_LM", **job["lora"])
        adapted = peft.get_peft_model(model.float(), settings)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        adapted.save_pretrained(job["adapter"])
    return {}


def merge(job):
    """peft's own merge of base and adapter: `logits` of the result."""
    import torch

    with torch.no_grad():
        merged = load(job).merge_and_unload()
        return {"logits": merged(input_ids=torch.tensor([job["tokens"]])).logits[0].numpy()}


def warp(job):
    """`probabilities` [vocab] of one row of `logits` after transformers' temperature, top-k and top-p."""
    import torch
    from transformers.generation import logits_process

    scores = torch.tensor([job["logits"]], dtype=torch.float64)
    steps = [logits_process.TemperatureLogitsWarper(job["temperature"])]
    if job["top_k"]:
        steps.append(logits_process.TopKLogitsWarper(job["top_k"]))
    if job["top_p"] < 1:
        steps.append(logits_process.TopPLogitsWarper(job["top_p"]))
    for step in steps:
        scores = step(None, scores)
    return {"probabilities": torch.softmax(scores, -1)[0].numpy()}


def dequantise(job):
    """`numbers` of raw GGUF blocks."""
    import gguf

    raw = np.load(job["raw"])["raw"]
    return {"numbers": gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(job["kind"]))}


def greedy(job):
    """`tokens` that `generate` appends without sampling."""
    import torch

    prompt = torch.tensor([job["tokens"]])
    model = load(job)
    settings = {"do_sample": False, "max_new_tokens": job["count"], "eos_token_id": None, "pad_token_id": 0}
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
    return {"tokens": out[0, len(job["tokens"]) :].numpy()}


def tokenize(job):
    """`ids` of the texts, one after the other, with `lengths`; `chat` are those of a rendered conversation."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in job["texts"]]
    chat = tokenizer.apply_chat_template(job["messages"], tokenize=False, add_generation_prompt=True)
    return {
        "ids": np.concatenate(ids),
        "lengths": np.array([len(own) for own in ids]),
        "chat": np.array(tokenizer.encode(chat, add_special_tokens=False)),
    }


def qwen_tokens(job):
    """`ids` and `lengths` of the texts by transformers' tokenizer of Qwen2 over a vocabulary and its merges."""
    from transformers import Qwen2Tokenizer

    merges = [tuple(merge.split(" ")) for merge in job["merges"]]
    vocab = {token: index for index, token in enumerate(job["vocab"])}
    tokenizer = Qwen2Tokenizer(vocab=vocab, merges=merges)
    tokenizer.add_tokens(job["special"], special_tokens=True)
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in job["texts"]]
    return {"ids": np.concatenate(ids), "lengths": np.array([len(own) for own in ids])}


def patterns(job):
    """How transformers splits text for Llama 3, as text."""
    import inspect

    from transformers.convert_slow_tokenizer import TikTokenConverter

    return {"llama-bpe": inspect.signature(TikTokenConverter.__init__).parameters["pattern"].default}


def jax_gradients(job):
    """As `gradients`, by a model written in jax, in float64."""
    import peer_jax

    return peer_jax.gradients(job)


def engine(job):
    """What evsys's engine computes over torch's CPU tensors; its sources are read from the folders `path`."""
    sys.path += job["path"]
    import engine_numbers

    from evsys_backend_local.engine.torch_arrays import torch_arrays

    given = {key: job[key] for key in ("home", "folder", "dtype", "full") if key in job}
    return getattr(engine_numbers, job["what"])(torch_arrays("cpu"), **given)


def engine_without_numbers(job):
    """The engine on torch's device without numbers: whatever reads one, but by `host`, fails. On a GPU it would wait there."""
    sys.path += job["path"]
    import attrs
    import engine_numbers
    import torch

    from evsys_backend_local.engine import torch_arrays

    types = {torch.float32: np.float32, torch.int64: np.int64}
    table = attrs.evolve(
        torch_arrays.torch_arrays("meta"),
        host=lambda x: np.zeros(tuple(x.shape), types[x.dtype]),
        norm=lambda x: 1.0,
        search=lambda values, number: 2,
        free_bytes=lambda: None,
    )
    torch_arrays.torch_arrays = lambda name: table
    given = {key: job[key] for key in ("home", "folder", "dtype", "full")}
    return {name: np.array(array.shape) for name, array in engine_numbers.trained(table, **given).items()}


def versions(job):
    """Versions of what is installed, as text."""
    import importlib.metadata

    found = {}
    for name in ("torch", "transformers", "peft", "gguf", "jax", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


JOBS = {
    job.__name__: job
    for job in (
        *(
            dequantise,
            engine,
            engine_without_numbers,
            gradients,
            greedy,
            jax_gradients,
            logits,
            make,
            merge,
            patterns,
            qwen_tokens,
            tokenize,
            versions,
            warp,
        ),
    )
}


def main():
    jobs, out = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(Path(__file__).parent))
    for job in json.loads(jobs.read_text(encoding="utf-8")):
        result = JOBS[job["do"]](job)
        if job["do"] in ("patterns", "versions"):
            (out / f"{job['name']}.json").write_text(json.dumps(result), encoding="utf-8")
        else:
            np.savez(out / f"{job['name']}.npz", **result)


if __name__ == "__main__":
    main()
