// Save the result of a command as a file rendered by the server.

import { fetchFile } from "./api.js";
import { saveBlob } from "./document.js";

export async function saveResult(command, body, format) {
  const { blob, name } = await fetchFile(`/api/${command}`, { ...body, format });
  saveBlob(blob, name);
}
