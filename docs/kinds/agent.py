"""An agent is the body of a policy: it gets one task and a model, acts until it is done, and returns the final text or a whole
`Rollout`. The engine around it records the model's tokens and has
the result judged.

A function is enough; a class has params. Without an agent, `chat` asks the model once. An agent class of another library is
named by `import_path`. A program that takes a base URL gets one by `await ctx.endpoint()`:
every agent can also be [trained](../harnesses.md).

## In an experiment file

```yaml
run:
  agent: {kind: twice}
metadata:
  benchmark: {name: val}
```
"""

from collections.abc import Sequence
from typing import Any

from evsys import register_agent
from evsys.protocols import InferenceClient
from evsys.types import AgentContext, HarborTask, Message


@register_agent("twice")
async def twice(task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext) -> str:
    """Asks, and asks again with the first answer in view."""
    asked = task.instruction
    talk = [Message(role="user", content=asked)] if isinstance(asked, str) else [*asked]
    (first,) = await model.generate(talk, ctx.sampling)
    talk += [first.message, Message(role="user", content="Check it and answer again.")]
    (second,) = await model.generate(talk, ctx.sampling)
    return second.message.content
