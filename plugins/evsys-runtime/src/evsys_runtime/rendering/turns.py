"""Token ids of a growing text, and the training sequences that its turns make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys_runtime.rendering.control_tokens import NO_MASKS, ControlTexts, Masks, encode_rendered
from evsys_runtime.rendering.growth import Prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evsys.protocols import Tokenizer

__all__ = ["TrainingSequences"]


class _GrowingTokens:
    """Token ids of texts of which most continue the one before.

    The text before a control token doesn't change the tokens after it. So what a text has in common with the one before, up to the
    last control token, keeps its tokens, and only what follows is encoded.

    Args:
        tokenizer: the model's tokenizer.
        controls: its control tokens; None encodes each text whole.
        masks: of the data in the texts.

    Attributes:
        ids: token ids of the last text.
    """

    def __init__(self, tokenizer: Tokenizer, controls: ControlTexts | None, masks: Masks) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        self._masks = masks
        self._text = Prefix("", 0)
        self._anchors: list[tuple[int, int, int]] = []
        self.ids: list[int] = []

    def encode(self, text: Prefix) -> tuple[int, list[int]]:
        """Make `ids` those of `text`.

        Returns:
            How many of the ids before are kept, and those that were after them.
        """
        same = _common(text, self._text)
        while self._anchors and self._anchors[-1][1] > same:
            self._anchors.pop()
        start, _, kept = self._anchors.pop() if self._anchors else (0, 0, 0)
        part = text.text(start)
        ids = encode_rendered(self._tokenizer, part, self._masks)
        if ids[:1] != self.ids[kept : kept + 1] and kept:  # not a control token where its text begins a text
            self._anchors.clear()
            start, kept, part = 0, 0, text.text()
            ids = encode_rendered(self._tokenizer, part, self._masks)
        replaced = self.ids[kept:]
        del self.ids[kept:]
        self.ids.extend(ids)
        self._text = text
        self._anchors.extend(self._find_controls(part, ids, start, kept))
        return kept, replaced

    def _find_controls(
        self, part: str, ids: list[int], start: int, before: int
    ) -> list[tuple[int, int, int]]:
        """Control tokens of a part: first character, the one after it, and the token; none unless text and ids agree on them."""
        if self._controls is None:
            return []
        of_text = self._controls.ids
        controls = set(of_text.values())
        matches = list(self._controls.occurrences(part))
        places = [place for place, token in enumerate(ids) if token in controls]
        if [ids[place] for place in places] != [of_text[match.group()] for match in matches]:
            return []
        return [
            (start + match.start(), start + match.end(), before + place)
            for match, place in zip(matches, places, strict=True)
        ]


class TrainingSequences:
    """Turns into as few sequences as their prompts allow: a turn continues a sequence if its prompt starts with all of it.

    Args:
        tokenizer: the model's tokenizer.
        controls: its control tokens, if it declares any.
        masks: of the data in the texts.
        background: weight of what is in no turn.

    Attributes:
        done: `(tokens, weights)` of equal length.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        controls: ControlTexts | None,
        masks: Masks = NO_MASKS,
        background: float = 0.0,
    ) -> None:
        self._tokenizer = tokenizer
        self._masks = masks
        self._background = background
        self._growing = _GrowingTokens(tokenizer, controls, masks)
        self._agreed = 0  # leading tokens of the last sequence known to be those of the text
        self.done: list[tuple[list[int], list[float]]] = []

    def continue_with(self, text: Prefix, background: float) -> bool:
        """Let the last sequence be the tokens of a text; False if these don't start with the sequence."""
        self._encode(text)
        if not self.done or not self._continues():
            return False
        self._take(background)
        return True

    def prompt(self, text: Prefix) -> None:
        """Continue to the end of a prompt, in a new sequence if need be."""
        self._encode(text)
        if not self.done or not self._continues():
            self.start()
        self._take(self._background)

    def start(self) -> None:
        """Begin a new sequence."""
        self.done.append(([], []))
        self._agreed = 0

    def answer_ids(self, whole: Prefix, answer: str) -> list[int] | None:
        """The tokens that continue a prompt, which was the last text, to the whole text.

        If the tokenizer would merge across the border (an answer that starts with a newline), the answer is encoded on its own, which
        is what a sampler writes; the text must come out the same.

        Returns:
            None if it doesn't.
        """
        length = len(self._growing.ids)
        kept, replaced = self._encode(whole)
        ids = self._growing.ids
        if ids[kept:length] == replaced:
            return ids[length:]
        apart = encode_rendered(self._tokenizer, answer, self._masks)
        text = self._tokenizer.decode([*ids[:kept], *replaced, *apart])
        return apart if text == self._masks.text(whole.text()) else None

    def learn(self, answer: Sequence[int], weight: float) -> None:
        """Append a turn's tokens to the last sequence."""
        tokens, weights = self.done[-1]
        tokens.extend(answer)
        weights.extend([weight] * len(answer))

    def _continues(self) -> bool:
        tokens, _ = self.done[-1]
        return self._growing.ids[self._agreed : len(tokens)] == tokens[self._agreed :]

    def _take(self, background: float) -> None:
        tokens, weights = self.done[-1]
        tokens.extend(self._growing.ids[len(tokens) :])
        weights.extend([background] * (len(tokens) - len(weights)))
        self._agreed = len(tokens)

    def _encode(self, text: Prefix) -> tuple[int, list[int]]:
        kept, replaced = self._growing.encode(text)
        self._agreed = min(self._agreed, kept)
        return kept, replaced


def _common(text: Prefix, other: Prefix) -> int:
    """Leading characters that two texts are known to have in common."""
    most = min(text.cut, other.cut)
    if text.base is other.base or text.base.startswith(other.base[:most]):
        return most
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        if text.base.startswith(other.base[least:middle], least):
            least = middle
        else:
            most = middle - 1
    return least
