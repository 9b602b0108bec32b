# A session of `reprise mcp`, by the official SDK of the Model Context Protocol: client.py REPRISE PROGRAM. Run by crates/reprise/tests/mcp.rs.
import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = {
    "record", "list", "summary", "backtrace", "events", "source", "values", "calls", "where", "last_write", "evaluate", "races",
    "chaos_until_failure", "diff", "origin",
}


def field(result, *names):
    # Versions of the SDK write names of the protocol in one of two ways.
    for name in names:
        if hasattr(result, name):
            return getattr(result, name)
    raise AttributeError(names)


async def main(reprise, program):
    server = StdioServerParameters(command=reprise, args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        began = await session.initialize()
        assert field(began, "server_info", "serverInfo").name == "reprise", began
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert TOOLS <= set(tools), tools
        for tool in tools.values():
            schema = field(tool, "input_schema", "inputSchema")
            assert schema["type"] == "object" and "time_limit_s" in schema["properties"], tool
            assert tool.description, tool

        async def call(name, **arguments):
            result = await session.call_tool(name, arguments)
            text = result.content[0].text
            return (text, None) if field(result, "is_error", "isError") else (None, json.loads(text))

        why, ran = await call("record", command=[program])
        assert why is None and ran["events"] > 0, (why, ran)
        why, told = await call("summary")
        assert why is None and told["trace"] == ran["trace"], (why, told)
        why, stack = await call("backtrace")
        assert why is None and stack["threads"] >= 1, (why, stack)
        # Two at a time.
        both = await asyncio.gather(call("values", expression="account.balance"), call("where", location="account.balance"))
        (why, values), (other, writers) = both
        assert why is None and values["found"] == 81, (why, values)
        assert other is None and writers["list"][0]["writes"] == 80, (other, writers)
        why, nothing = await call("backtrace", trace="no-such-trace")
        assert nothing is None and "no-such-trace" in why, (why, nothing)
        why, nothing = await call("values", expression=7)
        assert nothing is None and "values" in why, (why, nothing)
    print("all is well")


asyncio.run(main(*sys.argv[1:]))
