"""HTTP server: command API, OpenAI-compatible API and the studio's pages (`peasy serve`, `peasy studio`).

May import: fastapi, uvicorn, commands and every package below. Imported by: cli.
In: untrusted HTTP requests. Out: results of commands, token streams, the studio's pages.
"""
