"""Fabula for other programs: completions in the shape of OpenAI's API, and tools for assistants (MCP)."""
