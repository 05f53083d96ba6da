"""`peasy examples`."""

import json

LIBRARY = {
    "i-love-ai",
    "apple-orange",
    "apple-phone",
    "journey",
    "easy-peasy",
    "pizza-projection",
    "pizza",
    "self-attention",
}


def test_every_example_is_listed_and_can_be_explained(peasy):
    shown = peasy("examples")
    assert shown.code == 0
    assert not [name for name in LIBRARY if name not in shown.out]
    listed = json.dumps(peasy("examples", "--json").json["result"])
    assert not [name for name in LIBRARY if f'"{name}"' in listed and peasy("explain", name).code != 0]
    assert not [name for name in LIBRARY if f'"{name}"' not in listed]
