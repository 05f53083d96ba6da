"""`peasy models` from the terminal."""


def test_an_empty_house_says_how_to_fill_it(peasy, model_folder):
    ran = peasy("models")
    assert ran.code == 0
    assert "peasy import" in ran.out + ran.err


def test_one_model_is_described(peasy, model_folder):
    ran = peasy("models", model_folder, "--json")
    assert ran.code == 0
    assert ran.json["result"]["parameters"] > 0


def test_a_damaged_model_is_one_clear_error(peasy, model_folder):
    weights = next(model_folder.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:100])
    ran = peasy("models", model_folder)
    assert ran.code == 4
    assert "Traceback" not in ran.err
