"""Small models and a real server on a socket, for the server tests."""

import contextlib
import json
import socket
import threading
import time

from peasy.checkpoint.model import save_model
from peasy.models.build import build as build_model
from peasy.models.config import DecoderConfig
from peasy.models.preset import preset
from peasy.nn import config as nn_config
from peasy.server.server import GracefulServer, bind
from peasy.tokenization import Tokenizer, train_tokenizer

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
TEXTS = ["user: hello there\nassistant: hello you\nthe pizza came out of the oven and it tasted good\n"] * 9
LOCAL = "http://localhost"


def save_models(folder):
    """Save two decoders (the second with a chat template), a translator and an encoder, with random weights."""
    words = train_tokenizer(TEXTS, "bpe", 300)
    stack = nn_config.StackConfig(2, nn_config.AttentionConfig(2), nn_config.MLPConfig(32), nn_config.LayerNormConfig())
    writer = build_model(DecoderConfig(300, 16, stack, None, nn_config.RotaryConfig()), seed=1)
    talker = build_model(DecoderConfig(300, 16, stack, 64, nn_config.LearnedPositionConfig()), seed=2)
    pairs = train_tokenizer(TEXTS, "words")
    special_tokens = {"decoder_start": 1, "eos": [2]}
    return [
        save_model(folder / "writer", writer, words),
        save_model(folder / "talker", talker, Tokenizer(words._data, words.config | {"chat_template": TEMPLATE})),
        save_model(
            folder / "translator",
            build_model(preset("translator-tiny", vocab_size=len(pairs), special_tokens=special_tokens), seed=3),
            pairs,
        ),
        save_model(folder / "encoder", build_model(preset("encoder-tiny", vocab_size=300), seed=4), words),
    ]


@contextlib.contextmanager
def running_server(app, shutdown_timeout=5.0, max_connections=None, port=0):
    """Run the application on a real socket; yield its port."""
    listening = bind("127.0.0.1", port)
    server = GracefulServer(app, max_connections, shutdown_timeout)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)


def wait_until(condition, seconds=120.0):
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.005)


def connect(port, rcvbuf=None):
    """Return a socket connected to the server."""
    link = socket.socket()
    if rcvbuf is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    link.settimeout(120)
    link.connect(("127.0.0.1", port))
    return link


def post_bytes(path, body, port, **headers):
    """Return the bytes of a POST request."""
    text = json.dumps(body).encode()
    fields = {"host": f"localhost:{port}", "content-type": "application/json", "content-length": len(text), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + text


def read_all(link):
    """Read until the server closes or resets the connection; return the bytes and the seconds it took."""
    start, received = time.monotonic(), b""
    with contextlib.suppress(ConnectionError):
        while got := link.recv(65536):
            received += got
    return received, time.monotonic() - start


def read_events(text):
    """Return the events of a stream, and whether it ended with [DONE]."""
    lines = [line[6:] for line in text.split("\n\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"], bool(lines) and lines[-1] == "[DONE]"
