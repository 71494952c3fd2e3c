"""LoRA parameters: per targeted linear ``y += alpha / rank * (x A^T) B^T``.

Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models* (2021), arXiv 2106.09685.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import DTypeLike

from evsys_backend_local.engine.arrays import NUMPY, Array, Arrays
from evsys_backend_local.engine.params import FlatParams, Spec
from evsys_backend_local.engine.shape import FUSED, LINEARS, PARENT, ModelShape


@attrs.frozen(kw_only=True)
class Member:
    """One targeted linear inside a fused group: its columns of the output and of the low-rank product."""

    name: str
    outputs: slice
    ranks: slice


@attrs.frozen(kw_only=True)
class GroupLora:
    """LoRA of one fused group of linears.

    Attributes:
        a: ``[members * rank, inputs]``, a view of the parameters.
        b: ``[outputs, members * rank]`` block-diagonal copy of the B matrices, scaled by ``alpha / rank``.
        members: where each linear sits in both.
    """

    a: Array
    b: Array
    members: tuple[Member, ...]


class LoraParams:
    """Trainable low-rank matrices for a base model.

    Array names are ``layers.N.self_attn.q_proj.lora_A`` (``[rank, inputs]``) and ``...lora_B`` (``[outputs, rank]``).
    After writing to ``params`` call :meth:`refresh`.
    """

    def __init__(
        self,
        shape: ModelShape,
        *,
        rank: int,
        alpha: float = 32.0,
        targets: Sequence[str] = LINEARS,
        dtype: DTypeLike = np.float32,
        xp: Arrays = NUMPY,
    ) -> None:
        unknown = sorted(set(targets) - set(LINEARS))
        if unknown:
            raise ValueError(f"unknown LoRA target modules {unknown}; choose among {', '.join(LINEARS)}")
        if not targets:
            raise ValueError(f"no LoRA target modules given; choose among {', '.join(LINEARS)}")
        if rank < 1:
            raise ValueError(f"LoRA rank must be at least 1, got {rank}")
        self.shape = shape
        self.rank = rank
        self.alpha = float(alpha)
        self.targets: tuple[str, ...] = tuple(name for name in LINEARS if name in set(targets))
        self.params = FlatParams(self._specs(), dtype, zero=True, xp=xp)
        self.layers: list[dict[str, GroupLora]] = [self._groups(layer) for layer in range(shape.layers)]

    @property
    def scale(self) -> float:
        """Factor of the low-rank product."""
        return self.alpha / self.rank

    def initialise(self, seed: int) -> None:
        """A uniform in ``±1/sqrt(inputs)`` (what PEFT draws), B zero, so that training starts at the base model."""
        rng = np.random.default_rng(seed)
        for name, array in self.params.items():
            if name.endswith("lora_A"):
                bound = 1 / np.sqrt(array.shape[1])
                array[...] = self.params.xp.put(rng.uniform(-bound, bound, tuple(array.shape)))
            else:
                array[...] = 0
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the scaled block-diagonal copies of B."""
        for layer, groups in enumerate(self.layers):
            for group in groups.values():
                for member in group.members:
                    b = self.params[f"layers.{layer}.{PARENT[member.name]}.{member.name}.lora_B"]
                    self.params.xp.multiply(b, self.scale, out=group.b[member.outputs, member.ranks])

    def copy(self, flat: Array | None = None) -> LoraParams:
        """Independent copy; of the numbers ``flat`` where they are given."""
        other = LoraParams(
            self.shape,
            rank=self.rank,
            alpha=self.alpha,
            targets=self.targets,
            dtype=self.params.dtype,
            xp=self.params.xp,
        )
        other.params.flat[...] = self.params.flat if flat is None else flat
        other.refresh()
        return other

    def _specs(self) -> list[Spec]:
        sizes = self.shape.linear_sizes()
        specs: list[Spec] = []
        for layer in range(self.shape.layers):
            for names in FUSED.values():
                targeted = [name for name in names if name in self.targets]
                stems = [f"layers.{layer}.{PARENT[name]}.{name}" for name in targeted]
                # The A matrices of a group are neighbours, so that one product serves all of them.
                for stem, name in zip(stems, targeted, strict=True):
                    specs.append((stem + ".lora_A", (self.rank, sizes[name][1])))
                for stem, name in zip(stems, targeted, strict=True):
                    specs.append((stem + ".lora_B", (sizes[name][0], self.rank)))
        return specs

    def _groups(self, layer: int) -> dict[str, GroupLora]:
        sizes = self.shape.linear_sizes()
        groups: dict[str, GroupLora] = {}
        for fused, names in FUSED.items():
            members: list[Member] = []
            column = 0
            for name in names:
                outputs = sizes[name][0]
                if name in self.targets:
                    start = len(members) * self.rank
                    ranks = slice(start, start + self.rank)
                    members.append(Member(name=name, outputs=slice(column, column + outputs), ranks=ranks))
                column += outputs
            if members:
                stems = [f"layers.{layer}.{PARENT[member.name]}.{member.name}" for member in members]
                groups[fused] = GroupLora(
                    a=self.params.fused([stem + ".lora_A" for stem in stems]),
                    b=self.params.xp.zeros((column, len(members) * self.rank), self.params.dtype),
                    members=tuple(members),
                )
        return groups


class LoraGrads:
    """Gradient accumulator with the layout of a :class:`LoraParams`."""

    def __init__(self, lora: LoraParams) -> None:
        self.scale = lora.scale
        self.params = lora.params.like()
        self._a: list[dict[str, Array]] = []
        self._b: list[dict[str, list[tuple[Array, Member]]]] = []
        for layer, groups in enumerate(lora.layers):
            stems = {
                fused: [f"layers.{layer}.{PARENT[member.name]}.{member.name}" for member in group.members]
                for fused, group in groups.items()
            }
            self._a.append(
                {
                    fused: self.params.fused([stem + ".lora_A" for stem in names])
                    for fused, names in stems.items()
                }
            )
            self._b.append(
                {
                    fused: [
                        (self.params[stem + ".lora_B"], member)
                        for stem, member in zip(stems[fused], group.members, strict=True)
                    ]
                    for fused, group in groups.items()
                }
            )

    def add(self, layer: int, fused: str, *, x: Array, low: Array, dy: Array, d_low: Array) -> None:
        """Add the gradients of one group.

        Args:
            layer: block index.
            fused: group name.
            x: ``[rows, inputs]`` input.
            low: ``[rows, members * rank]``, ``x A^T``.
            dy: ``[rows, outputs]`` gradient of the group's output.
            d_low: ``[rows, members * rank]``, ``dy`` times the scaled B.
        """
        self._a[layer][fused] += d_low.T @ x
        for gradient, member in self._b[layer][fused]:
            product = dy[:, member.outputs].T @ low[:, member.ranks]
            product *= self.scale
            gradient += product
