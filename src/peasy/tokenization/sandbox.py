"""Sandbox process that renders a chat template; `chat_template.py` runs it, messages on stdin, text on stdout.

A template is an untrusted program that comes with a checkpoint. It runs in jinja2's immutable sandbox, in a separate
process with limits on its operations, memory and CPU time: single operations may take long (sums of lists, products).
"""

import contextlib
import json
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

_CPU_SECONDS_PER_CHAR = 2e-6
"""Further CPU time for long conversations: ten times what the templates of published models take."""

_MAX_PRODUCT = 10_000_000
"""Largest result of a multiplication or power, in bits or items: one operation may not take long."""


def set_limits(memory: int, cpu_seconds: float) -> None:
    """Limit memory and CPU time, if the system supports it; the parent also enforces a wall-clock timeout."""
    if sys.platform == "win32":
        return
    import resource

    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)  # SIGPROF ends the process
    with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _compile_template(template: str) -> "Template":
    """Return a compiled template; nothing of it is computed yet."""
    from jinja2 import nodes
    from jinja2.compiler import CodeGenerator
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """`{% generation %}` marks the text that the assistant writes; it is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

        def render(self, caller: Callable[[], str]) -> str:
            return caller()

    class Generator(CodeGenerator):
        """Code generator that computes no constants: filters of them would run now, without limits."""

        def _output_child_to_const(self, node: nodes.Expr, *arguments: Any) -> str:
            if isinstance(node, nodes.TemplateData):
                return super()._output_child_to_const(node, *arguments)
            raise nodes.Impossible

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops, code_generator_class = frozenset(("*", "**")), Generator

        def call_binop(self, context: Any, operator: str, left: object, right: object) -> object:
            _check_product(operator, left, right)
            return super().call_binop(context, operator, left, right)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationBlock], autoescape=False,
        optimized=False,
    )  # fmt: skip
    environment.filters["tojson"] = _to_json
    now = datetime.now()
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": now.strftime}
    return environment.from_string(template)


def render(template: "Template", values: dict[str, object], max_operations: int) -> str:
    """Render a template with these values within `max_operations` (lines of the compiled template)."""
    sys.settrace(_counter(max_operations))
    try:
        return template.render(**values)
    finally:
        sys.settrace(None)


def _counter(max_operations: int) -> Callable[..., Any]:
    """Return a trace function that raises after `max_operations` calls and lines of templates."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        if count > max_operations:
            raise TimeoutError(f"more than {max_operations:,} operations")
        return trace if frame.f_code.co_filename == "<template>" else None

    return trace


def _check_product(operator: str, left: object, right: object) -> None:
    """Raise if a product or power would be huge: 'x' * 10**9, 9 ** 9 ** 9."""
    bits = [abs(side).bit_length() if isinstance(side, int) else 64 for side in (left, right)]
    if operator == "**":
        size = bits[0] * abs(right) if isinstance(right, int) else 0
    else:
        items = [len(side) for side in (left, right) if hasattr(side, "__len__")]
        times = [abs(side) for side in (left, right) if isinstance(side, int)]
        size = items[0] * times[0] if items and times else sum(bits)
    if size > _MAX_PRODUCT:
        raise OverflowError("a product is too large")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Filter `tojson` as in transformers: no escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> None:
    raise ValueError(str(message))


def main() -> None:
    """Read one request from stdin, write the result to stdout."""
    request = json.loads(sys.stdin.buffer.read())
    texts = []
    try:
        template = _compile_template(request["template"])
        for chat in request["chats"]:
            num_chars = len(str(chat))
            set_limits(request["max_memory"], request["max_cpu_seconds"] + _CPU_SECONDS_PER_CHAR * num_chars)
            texts.append(render(template, request["values"] | chat, request["max_operations"] + num_chars))
        longest = max(map(len, texts))
        result: dict[str, object] = {"texts": texts}
        if longest > request["max_chars"]:
            result = {"error": f"it writes {longest:,} characters"}
    except MemoryError:
        result = {"error": "it takes too much memory"}
    except TimeoutError as error:
        result = {"error": f"it takes {error}"}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
