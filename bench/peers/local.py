"""One library's LoRA step on the batch of `bench/local.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/local.py LIBRARY MODEL_FOLDER TOKENS.json REPEATS

prints one JSON line. LIBRARY is torch-float32, torch-bfloat16, jax-float32 or trl-float32. Rank 8 on all linears, a loss at
each of 128 positions of 8 sequences, AdamW. `first_step_s` runs from the loaded model to the end of the first step, compilation
included; CPU and wall seconds of a step are the least of the repeats. `first_loss` is that of the untrained model, so it tells
whether the work is the same.
"""

import json
import os
import resource
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: the model lies in a folder
os.environ["HF_DATASETS_OFFLINE"] = "1"

RANK, ALPHA, RATE = 8, 32, 1e-4


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss():
    """Bytes; read from the kernel's status, since a child's `ru_maxrss` begins with what its parent held."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    lines = status.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class Clock:
    """Wall and CPU seconds of each step."""

    def __init__(self):
        self.steps = []
        self.begin()

    def begin(self):
        self.started = time.perf_counter(), cpu_seconds()

    def end(self):
        wall, cpu = self.started
        self.steps.append((time.perf_counter() - wall, cpu_seconds() - cpu))


def adapted(folder, dtype):
    """The model under a fresh adapter."""
    import peft
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return peft.get_peft_model(
        model, peft.LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, target_modules=targets)
    )


def run_torch(folder, tokens, repeats, dtype):
    """A plain loop over transformers and peft, with torch's own threads and fused attention."""
    import torch

    model = adapted(folder, getattr(torch, dtype))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=RATE, weight_decay=0)
    ids = torch.tensor(tokens)
    clock, losses = Clock(), []
    for _ in range(repeats + 1):
        clock.begin()
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
        clock.end()
    return clock.steps, losses


def run_trl(folder, tokens, repeats):
    """TRL's SFTTrainer; it is given 129 tokens a row, of which it predicts 128."""
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    clock = Clock()

    class Watch(TrainerCallback):
        def on_step_begin(self, *_, **__):
            if clock.steps:  # the first one counts from the start of training
                clock.begin()

        def on_step_end(self, *_, **__):
            clock.end()

    with tempfile.TemporaryDirectory(prefix="evsys-bench-trl-") as out:
        settings = SFTConfig(
            output_dir=out,
            per_device_train_batch_size=len(tokens),
            max_steps=repeats + 1,
            learning_rate=RATE,
            max_length=None,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        )
        trainer = SFTTrainer(
            model=adapted(folder, torch.float32),
            args=settings,
            # An epoch is the batch, so that shuffling changes nothing.
            train_dataset=Dataset.from_dict({"input_ids": tokens, "labels": tokens}),
            processing_class=AutoTokenizer.from_pretrained(folder),
            callbacks=[Watch()],
        )
        clock.begin()
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return clock.steps, losses


def load_jax(folder):
    """The config, and the frozen arrays with those of the blocks stacked."""
    import jax.numpy as jnp
    from safetensors.numpy import load_file

    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    raw = {}
    for path in Path(folder).glob("*.safetensors"):
        raw.update({name: value.astype("float32") for name, value in load_file(path).items()})

    def stack(name):
        blocks = range(config["num_hidden_layers"])
        return jnp.stack([raw[f"model.layers.{block}.{name}.weight"] for block in blocks])

    attention = {short: stack(f"self_attn.{short}_proj") for short in "qkvo"}
    embed = jnp.asarray(raw["model.embed_tokens.weight"])
    frozen = {
        "linears": attention | {short: stack(f"mlp.{short}_proj") for short in ("gate", "up", "down")},
        "norms": {"first": stack("input_layernorm"), "second": stack("post_attention_layernorm")},
        "embed": embed,
        "final": jnp.asarray(raw["model.norm.weight"]),
        "head": embed if config["tie_word_embeddings"] else jnp.asarray(raw["lm_head.weight"]),
    }
    return config, frozen


def jax_loss(config, ids):
    """`(adapter, frozen) -> loss` of the same decoder: one scan over the blocks, float32."""
    import jax
    import jax.numpy as jnp

    heads, kv, eps = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "rms_norm_eps"))
    width = config.get("head_dim") or config["hidden_size"] // heads
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    length = ids.shape[1] - 1
    angles = jnp.arange(length)[:, None] * theta ** (-jnp.arange(0, width, 2) / width)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    seen = jnp.tril(jnp.ones((length, length), bool))

    def rms(x, gain):
        return x * gain * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps)

    def turned(x):
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    def block(x, each):
        weights, gains, low = each

        def linear(short, y):
            a, b = low[short]
            return y @ weights[short].T + (ALPHA / RANK) * ((y @ a.T) @ b.T)

        y = rms(x, gains["first"])
        q = turned(linear("q", y).reshape(*y.shape[:2], heads, width)).reshape(*y.shape[:2], kv, -1, width)
        k = turned(linear("k", y).reshape(*y.shape[:2], kv, width))
        v = linear("v", y).reshape(*y.shape[:2], kv, width)
        scores = jnp.einsum("bqkgd,bskd->bkgqs", q, k) * width**-0.5
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1)
        mixed = jnp.einsum("bkgqs,bskd->bqkgd", shares, v)
        x = x + linear("o", mixed.reshape(*y.shape[:2], heads * width))
        y = rms(x, gains["second"])
        return x + linear("down", jax.nn.silu(linear("gate", y)) * linear("up", y)), None

    def loss(adapter, frozen):
        x, _ = jax.lax.scan(
            block, frozen["embed"][ids[:, :-1]], (frozen["linears"], frozen["norms"], adapter)
        )
        table = jax.nn.log_softmax(rms(x, frozen["final"]) @ frozen["head"].T, -1)
        return -jnp.take_along_axis(table, ids[:, 1:, None], 2).mean()

    return loss


def run_jax(folder, tokens, repeats):
    """A compiled step of :func:`jax_loss` and Adam."""
    import jax
    import jax.numpy as jnp

    config, frozen = load_jax(folder)
    linears = frozen["linears"]
    loss = jax_loss(config, jnp.asarray(tokens))
    keys = jax.random.split(jax.random.key(0), len(linears))
    adapter = {
        short: (
            jax.random.uniform(key, (w.shape[0], RANK, w.shape[2]), minval=-1, maxval=1) / w.shape[2] ** 0.5,
            jnp.zeros((w.shape[0], w.shape[1], RANK)),
        )
        for key, (short, w) in zip(keys, linears.items(), strict=True)
    }

    @jax.jit
    def step(adapter, moments, number, frozen):
        value, gradient = jax.value_and_grad(loss)(adapter, frozen)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradient)
        change = jax.tree.map(
            lambda m, v: RATE * (m / (1 - 0.9**number)) / (jnp.sqrt(v / (1 - 0.999**number)) + 1e-8),
            first,
            second,
        )
        return jax.tree.map(jnp.subtract, adapter, change), (first, second), value

    moments = (jax.tree.map(jnp.zeros_like, adapter), jax.tree.map(jnp.zeros_like, adapter))
    clock, losses = Clock(), []
    for number in range(1, repeats + 2):
        clock.begin()
        adapter, moments, value = step(adapter, moments, number, frozen)
        jax.block_until_ready(adapter)
        losses.append(float(value))
        clock.end()
    return clock.steps, losses


LIBRARIES = {
    "torch-float32": (("torch", "transformers", "peft"), lambda *job: run_torch(*job, "float32")),
    "torch-bfloat16": (("torch", "transformers", "peft"), lambda *job: run_torch(*job, "bfloat16")),
    "jax-float32": (("jax", "safetensors"), run_jax),
    "trl-float32": (("trl", "datasets", "peft"), run_trl),
}


def versions(packages):
    """Installed versions, or None where one is missing."""
    try:
        return {name: metadata.version(name) for name in packages}
    except metadata.PackageNotFoundError:
        return None


def main():
    library, folder, path, repeats = sys.argv[1:]
    packages, run = LIBRARIES[library]
    found = versions(packages)
    if found is None:
        print(json.dumps({"skipped": f"not installed: one of {', '.join(packages)}"}))
        return
    tokens = json.loads(Path(path).read_text(encoding="utf-8"))
    steps, losses = run(folder, tokens, int(repeats))
    wall, cpu = min(wall for wall, _ in steps[1:]), min(cpu for _, cpu in steps[1:])
    predicted = len(tokens) * (len(tokens[0]) - 1)
    figures = {
        "versions": found,
        "first_step_s": round(steps[0][0], 4),
        "step_s": round(wall, 4),
        "step_cpu_s": round(cpu, 4),
        "tokens_per_s": round(predicted / wall, 1),
        "first_loss": round(losses[0], 3),
        "peak_rss_bytes": peak_rss(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
