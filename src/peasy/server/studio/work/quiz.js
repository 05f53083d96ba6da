// Quiz on one matrix: some cells are open, answers are marked as by `peasy check`.

import { sum, writeNumber } from "/web/render/numbers.js";
import { button, element, fill, flexRow, mainButton, quiet } from "../element.js";
import { MatrixTable } from "../matrix.js";
import { compact } from "./example.js";

const VERDICTS = {
	right: ["✓", "right"],
	wrong: ["✗", "wrong"],
	truncated: ["✂", "truncated instead of rounded"],
	follows: ["↳", "consistent with an earlier mistake"],
	blank: ["?", "no answer yet"],
};

/** Open cells: about half of them, always the same for a table, at least one. */
function chooseOpenCells(step) {
	const positions = step.values.flatMap((row, r) => row.map((_, c) => `${r},${c}`));
	return new Set(
		positions.filter((_, index) => (index * 7 + step.values.length * 3) % 5 < 3).concat(positions.slice(-1)),
	);
}

/** The matrix with open cells, and buttons that mark it and show the answers. */
export function quizPanel(step, spec, example, shell, onRestart) {
	const matrix = new MatrixTable({ ...spec, openCells: chooseOpenCells(step) });
	const summary = element("p.verdict", { role: "status" });
	const reasons = element("ul.reasons");
	const mark = () =>
		shell.attempt(async () => {
			const { result } = await shell.request("check", {
				example: { ...compact(example), written: [writtenTable(step, matrix)] },
			});
			showMarks(result, step, matrix, summary, reasons);
		}, summary);
	const showAnswers = () => {
		for (const input of matrix.element.querySelectorAll("input.quiz")) {
			const [row, column] = input.dataset.at.split(",");
			input.value = writeNumber(step.values[row][column]);
		}
		mark();
	};
	matrix.element.addEventListener("keydown", (event) => event.key === "Enter" && mark());
	const bar = flexRow(
		mainButton("Mark", mark),
		button("Show the answers", showAnswers),
		button("Start again", onRestart),
	);
	return element(
		"div.quiz",
		matrix.element,
		quiet("Calculate the open cells (two decimals are enough) and press Enter to mark them."),
		bar,
		summary,
		reasons,
	);
}

// The table as filled in: unanswered cells are blank, shown cells are the server's.
function writtenTable(step, matrix) {
	const cells = matrix.cells.map((row) =>
		row.map((cell) => {
			const input = cell.querySelector("input");
			return input ? input.value.trim() : cell.textContent;
		}),
	);
	return { table: step.name, cells, rows: step.rows.map(String) };
}

function showMarks(result, step, matrix, summary, reasons) {
	const checked = new Map(result.cells.map((cell) => [`${cell.row}\u0000${cell.column}`, cell]));
	const counts = { right: 0, wrong: 0, truncated: 0, follows: 0, blank: 0 };
	const explanations = [];
	matrix.cells.forEach((row, r) =>
		row.forEach((cell, c) => {
			const input = cell.querySelector("input");
			if (!input) return;
			const mark = checked.get(`${step.rows[r]}\u0000${step.columns[c]}`);
			const verdict = input.value.trim() === "" ? "blank" : (mark?.verdict ?? "blank");
			counts[verdict] += 1;
			cell.dataset.verdict = verdict;
			cell.querySelector(".sign")?.remove();
			const [sign, title] = VERDICTS[verdict];
			cell.append(element("span.sign", { title }, sign, element("span.unseen", title)));
			if (verdict === "wrong" || verdict === "truncated")
				explanations.push(element("li", element("b", `${step.rows[r]} × ${step.columns[c]}: `), mark.reason));
		}),
	);
	const passed = !counts.wrong && !counts.blank;
	summary.className = `verdict ${passed ? "good" : counts.wrong ? "bad" : "note"}`;
	const others = { wrong: "wrong", truncated: VERDICTS.truncated[1], blank: "open" };
	summary.textContent = `${counts.right} of ${sum(Object.values(counts))} right${Object.entries(others)
		.map(([verdict, text]) => (counts[verdict] ? `, ${counts[verdict]} ${text}` : ""))
		.join("")}.`;
	fill(reasons, explanations);
}
