"""The official client, unchanged, against a server: a script of its own, which imports nothing of evsys.

    python official_client.py BASE_URL [KEY]

Prints one JSON document of what it saw. Written for the oldest and the newest version that evsys takes.
"""

import json
import sys
import warnings

import numpy as np
import tinker
from tinker import types

warnings.filterwarnings("ignore")

MODEL = "evsys/tiny"
TEXT = list(b"hello world, hello world")


def resolved(value):
    """Newer versions return futures where older ones returned the thing."""
    return value.result(timeout=60) if hasattr(value, "result") else value


def failure(call) -> list[str]:
    try:
        resolved(call())
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def datum(tokens=TEXT, **inputs):
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": np.array(tokens[1:]), **inputs},
    )


def ones(tokens=TEXT):
    return np.ones(len(tokens) - 1, np.float32)


def as_list(array):
    return None if array is None else np.asarray(array, dtype=float).tolist()


def loss(client, data=None):
    return resolved(client.forward(data or [datum(weights=ones())], "cross_entropy")).metrics["loss:sum"]


def step(client, data=None):
    """Both are submitted before one of them is waited for."""
    forward = client.forward_backward(data or [datum(weights=ones())] * 2, "cross_entropy")
    optim = client.optim_step(types.AdamParams(learning_rate=1e-2))
    return resolved(forward).metrics["loss:sum"], resolved(optim).metrics["grad_norm"]


def training(service, seen):
    client = resolved(service.create_lora_training_client(base_model=MODEL, rank=4, seed=3))
    info = resolved(client.get_info())
    seen["info"] = [info.model_data.model_name, info.is_lora, info.lora_rank]
    seen["steps"] = [step(client) for _ in range(4)]
    seen["logprobs"] = as_list(
        resolved(client.forward([datum(weights=ones())], "cross_entropy"))
        .loss_fn_outputs[0]["logprobs"]
        .to_numpy()
    )
    return client


def losses(client, seen):
    rl = {"logprobs": ones() * -3, "advantages": np.linspace(-1, 1, len(TEXT) - 1).astype(np.float32)}
    seen["losses"] = {}
    for name, config in (
        ("importance_sampling", None),
        ("ppo", {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}),
        ("cispo", None),
        ("dro", {"beta": 0.1}),
    ):
        arguments = [[datum(**rl)], name] + ([config] if config else [])
        seen["losses"][name] = resolved(client.forward_backward(*arguments)).metrics["loss:sum"]
    seen["refused"] = failure(lambda: client.forward_backward([datum(weights=ones())], "stable_reinforce"))
    seen["rejected"] = failure(
        lambda: client.forward_backward([datum([10**6, 1, 2], weights=ones()[:2])], "cross_entropy")
    )
    seen["usable_afterwards"] = step(client)[0] > 0


def two_passes(service, seen):
    """A loss of one's own without torch: forward, its gradient, then cross entropy with weights of minus the gradient."""

    def focal(logprobs):
        """-(1 - p)^2 log p, and its derivative by log p."""
        p = np.exp(logprobs.astype(np.float64))
        return -((1 - p) ** 2) * logprobs, 2 * p * (1 - p) * logprobs - (1 - p) ** 2

    client = resolved(service.create_lora_training_client(base_model=MODEL, rank=4, seed=3))
    for _ in range(3):
        output = resolved(client.forward([datum(weights=ones())], "cross_entropy"))
        logprobs = np.asarray(output.loss_fn_outputs[0]["logprobs"].to_numpy())
        gradient = focal(logprobs)[1].astype(np.float32)
        resolved(client.forward_backward([datum(weights=-gradient)], "cross_entropy"))
        resolved(client.optim_step(types.AdamParams(learning_rate=1e-2)))
    seen["two_passes"] = loss(client)
    try:
        import torch
    except ImportError:
        return
    other = resolved(service.create_lora_training_client(base_model=MODEL, rank=4, seed=3))

    def torch_focal(data, logprobs):
        p = torch.exp(logprobs[0])
        return (-((1 - p) ** 2) * logprobs[0]).sum(), {}

    for _ in range(3):
        resolved(other.forward_backward_custom([datum(weights=ones())], torch_focal))
        resolved(other.optim_step(types.AdamParams(learning_rate=1e-2)))
    seen["own_custom_loss"] = loss(other)


def chunks(service, seen):
    """More examples than one request may have: chunks, the first of which is sent last."""
    client = resolved(service.create_lora_training_client(base_model=MODEL, rank=4, seed=3))
    short = TEXT[:4]
    data = [datum(short, weights=ones(short))] * 2500
    output = resolved(client.forward_backward(data, "cross_entropy"))
    norm = resolved(client.optim_step(types.AdamParams(learning_rate=1e-2))).metrics["grad_norm"]
    seen["chunks"] = [len(output.loss_fn_outputs), output.metrics["loss:sum"], norm]


def saving(service, client, seen):
    path = resolved(client.save_state("first", ttl_seconds=3600)).path
    seen["path"] = path
    seen["conflict"] = failure(lambda: client.save_state("first"))
    seen["before"] = loss(client)
    restored = resolved(service.create_training_client_from_state_with_optimizer(path))
    fresh = resolved(service.create_training_client_from_state(path))
    seen["after"] = [loss(restored), loss(fresh)]
    seen["then"] = [step(client), step(restored), step(fresh)]
    seen["missing"] = failure(lambda: service.create_training_client_from_state(path + "-none"))


def sampling(service, client, seen):
    path = resolved(client.save_weights_for_sampler("s1")).path
    sampler = resolved(service.create_sampling_client(model_path=path))
    prompt = types.ModelInput.from_ints(TEXT[:5])
    greedy = types.SamplingParams(max_tokens=6, temperature=0.0)
    answer = resolved(sampler.sample(prompt, 2, greedy, include_prompt_logprobs=True))
    first = answer.sequences[0]
    seen["sample"] = [list(first.tokens), as_list(first.logprobs), first.stop_reason, len(answer.sequences)]
    seen["prompt_logprobs"] = list(answer.prompt_logprobs)
    seen["compute_logprobs"] = list(resolved(sampler.compute_logprobs(types.ModelInput.from_ints(TEXT))))
    live = resolved(client.save_weights_and_get_sampling_client())
    seen["live"] = list(resolved(live.sample(prompt, 1, greedy)).sequences[0].tokens)
    base = resolved(service.create_sampling_client(base_model=MODEL))
    burst = [base.sample(prompt, 1, types.SamplingParams(max_tokens=2, seed=n)) for n in range(32)]
    seen["burst"] = sum(len(resolved(one).sequences[0].tokens) for one in burst)
    try:
        one = resolved(base.sample(prompt, 1, greedy, topk_sample_logprobs=3)).sequences[0]
        seen["topk"] = [np.asarray(one.topk_logprobs_np.token_ids).tolist(), list(one.tokens)]
    except (AttributeError, TypeError):  # the oldest version doesn't ask for them
        seen["topk"] = None
    seen["topk_prompt"] = failure(lambda: base.sample(prompt, 1, greedy, topk_prompt_logprobs=21))
    seen["outside"] = failure(lambda: base.sample(types.ModelInput.from_ints([10**6]), 1, greedy))


def rest(service, seen):
    client = service.create_rest_client()
    path = seen["path"]
    runs = resolved(client.list_training_runs())
    seen["runs"] = [run.training_run_id for run in runs.training_runs]
    listed = resolved(client.list_user_checkpoints()).checkpoints
    seen["checkpoints"] = sorted(one.tinker_path for one in listed)
    info = resolved(client.get_weights_info_by_tinker_path(path))
    seen["weights_info"] = [info.base_model, info.is_lora, info.lora_rank]
    seen["sessions"] = len(resolved(client.list_sessions()).sessions)
    resolved(client.set_checkpoint_ttl_from_tinker_path(path, 7200))
    resolved(client.delete_checkpoint_from_tinker_path(path))
    seen["after_delete"] = [one.tinker_path for one in resolved(client.list_user_checkpoints()).checkpoints]


def main() -> None:
    base_url, key = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tml-any"
    service = tinker.ServiceClient(base_url=base_url, api_key=key)
    seen = {"version": tinker.__version__}
    capabilities = resolved(service.get_server_capabilities())
    seen["models"] = [model.model_name for model in capabilities.supported_models]
    seen["unknown"] = failure(lambda: service.create_lora_training_client(base_model="gpt-9", rank=4))
    client = training(service, seen)
    saving(service, client, seen)
    sampling(service, client, seen)
    losses(client, seen)
    two_passes(service, seen)
    chunks(service, seen)
    rest(service, seen)
    if hasattr(service, "close"):
        resolved(service.close("success"))
    seen["modules"] = sorted(name for name in sys.modules if name.partition(".")[0].startswith("evsys"))
    json.dump(seen, sys.stdout, default=lambda value: np.asarray(value).tolist())


if __name__ == "__main__":
    main()
