"""`peasy import`: imports a Hugging Face model as a peasy checkpoint."""

import shlex

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.derive import Call, derive
from peasy.commands.importing import ImportResult, import_model


@derive(import_model)
def import_(call: Call[ImportResult], source: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Import a Hugging Face model as a peasy checkpoint with a name.

    Reads only safetensors and JSON files; weights that do not match the config are rejected.

    For example:

        peasy import ./my-hugging-face-folder --name mine
        peasy import sentence-transformers/all-MiniLM-L6-v2 --yes

    Args:
        source: Hugging Face folder, hub id, or peasy checkpoint.
    """
    result = call(source)
    name = shlex.quote(result.name)
    suggestions = [f"peasy models {name}", f'peasy tokenize {name} "Easy peasy"']
    return CommandOutput(result, suggestions=suggestions, files=[result.folder])
