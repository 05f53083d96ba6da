"""`peasy import` from the terminal."""


def test_a_folder_comes_in_under_a_name(peasy, model_folder):
    ran = peasy("import", model_folder, "--name", "mine", "--json")
    assert ran.code == 0
    assert ran.json["result"]["name"] == "mine"
    assert "mine" in peasy("models").out
    assert peasy("tokenize", "mine", "I love AI").code == 0


def test_a_name_is_taken_once(peasy, model_folder):
    assert peasy("import", model_folder, "--name", "mine").code == 0
    ran = peasy("import", model_folder, "--name", "mine")
    assert ran.code in (2, 4)
    assert "mine" in ran.err


def test_no_network_is_said_and_not_tried(peasy, model_folder):
    assert peasy("import", "some-org/some-model", "--offline").code in (3, 7)
