// What a verb answers as a file, drawn by the server and saved by the browser.

import { fetchFile } from "./api.js";
import { saveBlob } from "./draw.js";

export async function save(verb, body, format) {
  const { blob, name } = await fetchFile(`/api/${verb}`, { ...body, format });
  saveBlob(blob, name);
}
