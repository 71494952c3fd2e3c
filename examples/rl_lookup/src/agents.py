"""An agent that gives the model a tool: its first message is looked up, and the result is shown to it."""

from evsys.types import Message

NOTHING = "nothing"


async def lookup(task, model, ctx):
    """Two turns: the model names a shelf, sees what lies there, and answers."""
    conversation = [Message(role="user", content=task.instruction)]
    call = (await model.generate(conversation, ctx.sampling))[0].message
    found = task.metadata["shelves"].get(call.content.strip(), NOTHING)
    conversation += [call, Message(role="tool", content=f"copy: {found}")]
    answer = (await model.generate(conversation, ctx.sampling))[0].message
    return answer.content
