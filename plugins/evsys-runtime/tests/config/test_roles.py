"""Second models of a run: who uses them, where they run, and what can be known to be wrong before anything is prepared."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

HEAD = "version: 1\nname: x\n"


class Taught:
    """Can't do without a teacher, and may be held near a reference."""

    Config = None
    roles: ClassVar = {"teacher": frozenset({"prompt_logprobs"}), "reference": frozenset()}
    required_roles = frozenset({"teacher"})

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def validate_roles(self, model, roles):
        for name, role in roles.items():
            if role.name == "evsys/foreign":
                yield f"{name} {role.name!r} speaks another language than {model.name!r}"

    async def train(self, ctx):
        raise NotImplementedError


class Telling:
    """A backend that can say how likely tokens are."""

    Config = None
    capabilities = frozenset({"prompt_logprobs"})
    honours = frozenset({"init_from_checkpoint"})

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    @staticmethod
    def validate_model(model):
        return [] if model.name.startswith("evsys/") else [f"there is no model {model.name!r}"]

    async def prepare(self, model, run_dir, seed, restore=None):
        raise NotImplementedError

    async def teardown(self, client):
        raise NotImplementedError


@pytest.fixture(autouse=True)
def plugins(registry):
    registry.register("algorithm", "taught", Taught)
    registry.register("backend", "telling", Telling)
    registry.register("inference_client", "service", Telling)


def run(teacher: str | None = "{model: {name: evsys/tiny}}", **changes: str) -> str:
    lines = {
        "data": "{path: data/train.jsonl}",
        "model": "{name: evsys/tiny}",
        "algorithm": "{kind: taught}",
        "backend": "{kind: telling}",
        **({} if teacher is None else {"teacher": teacher}),
        **changes,
    }
    return HEAD + "run:\n" + "".join(f"  {key}: {value}\n" for key, value in lines.items())


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    return problems[0]


def test_a_role_is_a_model_and_a_backend_of_its_own_or_the_runs(load):
    arm = load(run("{model: {name: evsys/big}, backend: {kind: telling}}")).arms[0]
    assert (arm.run.teacher.model.name, arm.run.teacher.backend.kind) == ("evsys/big", "telling")
    assert arm.tree["teacher"]["model"] == {"name": "evsys/big"}
    assert load(run()).arms[0].run.teacher.backend is None


def test_an_algorithm_that_needs_a_teacher_says_so(problems):
    assert "algorithm 'taught' needs a teacher, and the run names none" in only(problems(run(None)))


def test_an_algorithm_that_cannot_say_what_it_trains_is_a_problem_beside_a_teacher_too(problems, registry):
    class Mute(Taught):
        def lora(self):
            raise RuntimeError("no idea")

    registry.register("algorithm", "mute", Mute)
    said = only(problems(run(algorithm="{kind: mute}")))
    assert (
        "$.run.algorithm.params: the algorithm can't report its trained parameters: RuntimeError: no idea"
        in said
    )


def test_a_role_that_nobody_uses_is_refused_where_it_stands(problems):
    text = run(algorithm="{kind: sft}")
    assert only(problems(text)).startswith(
        "exp.yaml:8:3: $.run.teacher: algorithm 'sft', as it is set, uses no teacher"
    )


def test_the_backend_of_a_role_must_offer_what_the_algorithm_needs_of_it(problems):
    on_the_run = run(backend="{kind: mock}")
    assert "a teacher needs 'prompt_logprobs', which backend 'mock' doesn't offer" in only(
        problems(on_the_run)
    )
    of_its_own = run("{model: {name: evsys/tiny}, backend: {kind: mock}}")
    assert "$.run.teacher.backend.kind: a teacher needs 'prompt_logprobs'" in only(problems(of_its_own))


def test_an_inference_client_is_no_backend_and_the_hint_says_where_it_stands(problems):
    text = only(problems(run("{model: {name: evsys/tiny}, backend: {kind: service}}")))
    assert "no backend is called 'service'" in text
    assert "it is an inference client, which belongs in teacher.inference" in text


class Service:
    """An inference client that tells how likely tokens are."""

    Config = None

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    async def generate(self, messages, sampling, *, n=1, tools=()):
        raise NotImplementedError

    async def prompt_logprobs(self, tokens):
        raise NotImplementedError


class Mute:
    """An inference client that only answers."""

    Config = None

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    async def generate(self, messages, sampling, *, n=1, tools=()):
        raise NotImplementedError


def served(kind: str = "answering", model: str = "{name: evsys/tiny}", more: str = "") -> str:
    return run(f"{{model: {model}, inference: {{kind: {kind}}}{more}}}")


def test_a_service_is_a_teacher_where_its_client_tells_how_likely_tokens_are(load, registry):
    registry.register("inference_client", "answering", Service)
    (arm,) = load(served()).arms
    assert (arm.run.teacher.inference.kind, arm.run.teacher.backend) == ("answering", None)
    assert arm.run.teacher.own is arm.run.teacher.inference
    assert not arm.deterministic


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (
            {"kind": "mute"},
            "$.run.teacher.inference.kind: a teacher needs 'prompt_logprobs', which inference",
        ),
        ({"kind": "nobodys"}, "$.run.teacher.inference.kind"),
        ({"more": ", backend: {kind: telling}"}, "'backend' and 'inference' both name a place for the model"),
        (
            {"model": "{name: evsys/tiny, init_from_checkpoint: data}"},
            "$.run.teacher.model.init_from_checkpoint: a service has its model as it is",
        ),
        (
            {"model": "{name: evsys/tiny, load_checkpoint_path: data}"},
            "isn't trained, so it has no optimiser",
        ),
        (
            {"model": "{name: evsys/tiny, renderer: chat_template}"},
            "$.run.teacher.model.renderer: a service has",
        ),
        ({"model": "{name: evsys/foreign}"}, "speaks another language"),
    ],
)
def test_what_cant_be_of_a_service_is_told(problems, registry, teacher, message):
    registry.register("inference_client", "answering", Service)
    registry.register("inference_client", "mute", Mute)
    assert message in only(problems(served(**teacher)))


def test_bits_that_a_service_cant_promise_arent_promised(problems, registry):
    registry.register("inference_client", "answering", Service)
    text = only(
        problems(
            "deterministic: true\n" + served(),
        )
    )
    assert "$.deterministic" in text


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{name: gpt}", "$.run.teacher.model.name: there is no model 'gpt'"),
        ("{name: evsys/foreign}", "teacher 'evsys/foreign' speaks another language than 'evsys/tiny'"),
        ("{name: evsys/tiny, init_from_checkpoint: nowhere}", "$.run.teacher.model.init_from_checkpoint"),
        ("{name: evsys/tiny, load_checkpoint_path: data}", "isn't trained, so it has no optimiser"),
        ("{name: evsys/tiny, renderer: nobodys}", "$.run.teacher.model.renderer"),
    ],
)
def test_what_is_wrong_with_its_model_is_told(problems, model: str, message: str):
    assert message in only(problems(run(f"{{model: {model}}}")))


def test_a_run_promises_the_same_bits_only_if_all_its_backends_do(load, problems, registry):
    class Steady(Telling):
        capabilities = Telling.capabilities | {"deterministic"}

    registry.register("backend", "steady", Steady)
    on_steady = {"backend": "{kind: steady}"}
    assert load(run(**on_steady)).arms[0].deterministic
    mixed = run("{model: {name: evsys/tiny}, backend: {kind: telling}}", **on_steady)
    assert not load(mixed).arms[0].deterministic
    assert "backend 'telling' can't promise it" in only(problems(mixed + "deterministic: true\n"))


def test_a_role_may_vary_from_arm_to_arm(load):
    text = run(None).replace("run:", "base_run:")
    axes = "matrix: {axes: {teacher.model.name: [evsys/a, evsys/b]}}\n"
    plan = load(text.replace("  backend", "  teacher: {model: {name: evsys/tiny}}\n  backend") + axes)
    assert [arm.run.teacher.model.name for arm in plan.arms] == ["evsys/a", "evsys/b"]
    assert len({arm.digest for arm in plan.arms}) == 2
