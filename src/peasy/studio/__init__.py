"""WEB DOOR: all of peasy over HTTP, one application with two doors, `peasy serve` and `peasy studio`.

May import: fastapi, uvicorn, workbench and every room below. Imported by: cli, which opens the doors.
In: requests of anybody who reaches the port. Out: the verbs' results, streams of tokens, the pages of the studio.
"""
