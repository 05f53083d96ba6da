"""`peasy evaluate`."""


def test_metrics_on_a_file(peasy, model_folder, tmp_path):
    (tmp_path / "book.txt").write_text("I love pizza I love AI " * 30, encoding="utf-8")
    ran = peasy("evaluate", model_folder, "book.txt", "--split", "all", "--json")
    assert ran.code == 0
    measures = ran.json["result"]["measures"]
    assert {"loss", "perplexity", "bits per byte", "accuracy"} <= set(measures)
    shown = peasy("evaluate", model_folder, "book.txt", "--split", "all")
    assert f"{measures['loss']:.4f}" in shown.out


def test_data_is_required(peasy, model_folder):
    ran = peasy("evaluate", model_folder)
    assert ran.code == 2
    assert "DATA" in ran.err


def test_unknown_dataset_is_not_found(peasy, model_folder):
    assert peasy("evaluate", model_folder, "storise").code == 3
