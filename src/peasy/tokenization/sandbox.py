"""Sandbox process that renders a chat template; `chat_template.py` runs it, messages on stdin, text on stdout.

A template is an untrusted program that comes with a checkpoint. It runs in jinja2's immutable sandbox, in a separate
process with limits on memory and CPU time.
"""

import contextlib
import json
import sys
from datetime import datetime


def set_limits(memory: int, cpu_seconds: int) -> None:
    """Limit memory and CPU time, if the system supports it; the parent also enforces a wall-clock timeout."""
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))


def render(template: str, values: dict[str, object]) -> str:
    """Render a template with these values."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    now = datetime.now()
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": now.strftime}
    return environment.from_string(template).render(**values)


def _raise_exception(message: object) -> None:
    raise ValueError(str(message))


def main() -> None:
    """Read one request from stdin, write the result to stdout."""
    request = json.loads(sys.stdin.buffer.read())
    set_limits(request["max_memory"], request["max_cpu_seconds"])
    try:
        text = render(request["template"], request["values"])
        result = (
            {"text": text} if len(text) <= request["max_chars"] else {"error": f"it writes {len(text):,} characters"}
        )
    except MemoryError:
        result = {"error": "it takes too much memory"}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
