"""The tools of a project over the Model Context Protocol, in both of its eras.

The protocol's own server class makes schemas from signatures and ignores unknown arguments, so the one below it is used:
schemas are those of the tools, and arguments are checked by them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from typing import Any

from mcp import MCPError, types
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server

from evsys.errors import EvsysError
from evsys_record.secrets import Redactor
from evsys_runtime import Answer, Tool, Toolbox
from evsys_runtime.tools.caps import compact_text

__all__ = ["server_of"]

INSTRUCTIONS = """Experiments that train and evaluate language models, with their record.
Read `context` first. Write an experiment file in the project (keys: `schema` with kind `experiment`), then `plan` it, `run` it with the \
token of the plan, `wait` until it ends, and read `show` and `why`. `next` suggests what to do.
Answers have no text of the models under test."""

_SCHEME = "evsys://answers/"

_WHOLES = 32
"""Whole answers that can still be read after a shortened one."""

type Context = ServerRequestContext[Any]


def server_of(toolbox: Toolbox, *, version: str = "") -> Server[Any]:
    """The server of one project.

    Args:
        toolbox: its tools.
        version: of the server.
    """
    served = _Served(toolbox)
    return Server(
        "evsys",
        version=version,
        title="evsys",
        instructions=INSTRUCTIONS,
        on_list_tools=served.list_tools,
        on_call_tool=served.call_tool,
        on_list_resources=served.list_resources,
        on_list_resource_templates=served.list_templates,
        on_read_resource=served.read_resource,
    )


class _Served:
    """The handlers, and the whole of the last shortened answers."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._wholes: OrderedDict[str, str] = OrderedDict()

    async def list_tools(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_description(tool) for tool in self._toolbox.tools.values()])

    async def call_tool(self, _context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            answer = await asyncio.to_thread(self._toolbox.call, params.name, params.arguments or {})
        except EvsysError as error:
            text = Redactor.from_environment().text(str(error))
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=compact_text(answer.tree))]
        if answer.cuts:
            content += self._rest(params.name, answer)
        return types.CallToolResult(content=content, structured_content={**answer.tree})

    def _rest(self, name: str, answer: Answer) -> list[types.ContentBlock]:
        """The parts that an answer lacks, and a link to the whole."""
        key = secrets.token_urlsafe(9)
        self._wholes[key] = compact_text(answer.whole)
        while len(self._wholes) > _WHOLES:
            self._wholes.popitem(last=False)
        words = f"Shortened ({'; '.join(answer.cuts)}). A higher max_tokens gives more; the whole is the resource."
        return [
            types.TextContent(type="text", text=words),
            types.ResourceLink(
                type="resource_link",
                uri=f"{_SCHEME}{key}",
                name=f"{name}, whole",
                mime_type="application/json",
                size=len(self._wholes[key].encode()),
            ),
        ]

    async def list_resources(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def list_templates(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=f"{_SCHEME}{{id}}",
            name="whole answer",
            description="The whole of an answer that a tool has shortened.",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, _context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        text = self._wholes.get(uri.removeprefix(_SCHEME)) if uri.startswith(_SCHEME) else None
        if text is None:
            raise MCPError(types.INVALID_PARAMS, f"no answer is kept as {uri}; call the tool again")
        contents = types.TextResourceContents(uri=params.uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[contents])


def _description(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.read_only,
            open_world_hint=False,
        ),
    )
