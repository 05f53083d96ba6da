"""A chat template run in a process of its own, where it can neither reach anything nor take much: `template.py` starts
this file with the template and the messages on stdin, and reads the text from stdout.

Whoever made a checkpoint wrote its template; it is a small program, so it gets a sandbox that forbids names with
underscores and changes to what it is given, a limit on memory and one on time, and the process ends with it.
"""

import contextlib
import json
import sys
from datetime import datetime
from typing import Any


def limit(memory: int, seconds: int) -> None:
    """Where the system can, no more memory and processor time than this; the parent watches the clock as well."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def render(template: str, values: dict[str, Any]) -> str:
    """The text that a template makes of messages."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    place = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False
    )
    place.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    place.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return place.from_string(template).render(**values)


def _refuse(message: object) -> None:
    raise ValueError(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def main() -> None:
    """Read one question, answer it, end."""
    asked = json.loads(sys.stdin.buffer.read())
    limit(asked["memory"], asked["seconds"])
    try:
        text = render(asked["template"], asked["values"])
        answer = {"text": text} if len(text) <= asked["most"] else {"error": f"it writes {len(text):,} characters"}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
