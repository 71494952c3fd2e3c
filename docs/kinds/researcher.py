"""A researcher proposes experiments towards a goal. Its answer depends on the research so far alone, so research resumes
anywhere; the runner keeps the rules: [automated research](../autoresearch.md).

## In a goal file

The key is `researcher`, with `kind` and `params`.
"""

import copy
import random

import attrs

from evsys import option, register_researcher
from evsys.types import Proposal, ResearchState, Stop


@register_researcher("coin")
class Coin:
    """Tosses a coin for each choice under the levers."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `coin`."""

        tries: int = option(100, "Draws in a row that were all tried before, after which it stops.", ge=1)

    def __init__(self, tries: int) -> None:
        self.tries = tries

    async def propose(self, state: ResearchState) -> Proposal | Stop:
        rng = random.Random(f"{state.seed}/{len(state.rounds)}")
        axes = [axis for axis in state.space if axis.choices]
        tried = [each.changes for each in state.rounds]
        for _ in range(self.tries if axes else 0):
            changes = {axis.path: rng.choice(axis.choices) for axis in axes}
            config = copy.deepcopy(dict(state.start))
            for path, value in list(changes.items()):
                *above, last = path.split(".")
                node = config
                for key in above:
                    node = node[key]
                if node[last] == value:
                    del changes[path]
                node[last] = value
            if changes and changes not in tried:
                return Proposal(config=config, hypothesis="luck helps", expected_effect=state.minimum_effect)
        return Stop(reason="nothing is left to toss for")
