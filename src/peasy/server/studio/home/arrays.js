// Captured arrays of /api/look as binary: a JSON header and float32 data.

import { ApiError, whileWaiting } from "../api.js";

/** Arrays of one request: each `{stack, layer, part, step, heads, rows, shape, values}`. */
export async function requestArrays(body, signal) {
	return whileWaiting(async () => {
		const headers = { "content-type": "application/json" };
		const options = { method: "POST", headers, body: JSON.stringify({ ...body, binary: true }), signal };
		const response = await fetch("api/look", options);
		if (!response.ok) {
			const { error } = await response.json().catch(() => ({}));
			throw new ApiError(
				error?.message ?? "The numbers of this head are not there.",
				error?.hint ?? "",
				response.status,
			);
		}
		return readArrays(await response.arrayBuffer());
	});
}

/** Parse the payload: the length of the header (4 bytes, little-endian), the header, the data. */
export function readArrays(buffer) {
	const length = new DataView(buffer).getUint32(0, true);
	const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
	const data = buffer.slice(4 + length);
	return header.arrays.map((entry) => {
		const count = entry.shape.reduce((product, size) => product * size, 1);
		return { ...entry, values: new Float32Array(data, entry.offset, count) };
	});
}

/** One head's matrix of a step, as rows of numbers; null if it was not captured. */
export function headMatrix(arrays, { stack, layer, part }, step) {
	const found = arrays.find(
		(entry) => entry.stack === stack && entry.layer === layer && entry.part === part && entry.step === step,
	);
	if (!found) return null;
	const [rows, columns] = found.shape.slice(-2);
	return Array.from({ length: rows }, (_, row) => [...found.values.subarray(row * columns, (row + 1) * columns)]);
}
