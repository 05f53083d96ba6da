// Beam search as a tree: hypotheses from left to right, the best one highlighted.

import { writeNumber } from "/web/render/numbers.js";
import { textWidth } from "/web/render/links.js";
import { downloadButtons } from "../download.js";
import { renderDocument } from "../document.js";
import { details, element, quiet } from "../element.js";

const [ROW_HEIGHT, GAP] = [27, 26];

/** Elements that show the response of /api/beams. */
export function drawTree(response) {
	const { branches, hypotheses, num_beams } = response.result;
	const roots = groupTokens(branches);
	let numLeaves = 0;
	const layOut = (group, x) => {
		group.x = x;
		const measure = (text) => textWidth(text, group.won ? "bold" : "normal") + 4;
		group.textWidth = measure(group.text);
		group.width = group.textWidth + (group.mark ? measure(group.mark) : 0);
		group.children.forEach((child) => layOut(child, x + group.width + GAP));
		group.y = group.children.length
			? (group.children[0].y + group.children.at(-1).y) / 2
			: 14 + ROW_HEIGHT * numLeaves++;
	};
	const root = { text: "", mark: "", children: roots, won: true };
	layOut(root, 6);
	const groups = roots.flatMap(flattenGroup);
	const size = [Math.max(...groups.map((group) => group.x + group.width)) + 12, numLeaves * ROW_HEIGHT + 6];
	const svg = element(
		"svg.tree",
		{
			width: size[0],
			height: size[1],
			viewBox: `0 0 ${size.join(" ")}`,
			role: "img",
			"aria-label": `Beam search with ${num_beams} beams: ${hypotheses.map(({ text }) => text).join("; ")}`,
		},
		[root, ...groups].flatMap(drawEdges),
		element("circle", { cx: root.x + 3, cy: root.y, r: 4, fill: "currentColor" }),
		groups.map(drawNode),
	);
	const tables = renderDocument(response);
	const cells = ({ cells: found }) => [...found].map(({ textContent }) => textContent);
	return [
		element("div.tree-home", { tabindex: 0, role: "group", "aria-label": "Beam search tree" }, svg),
		quiet(
			"● a finished hypothesis with its rank; × a hypothesis pruned because others were likelier. Thick lines are " +
				"likely tokens.",
		),
		details("The tree as a table", tables),
		downloadButtons(
			"beams",
			() => svg,
			() => [...[...tables.querySelectorAll("table")].at(-1).rows].map(cells),
		),
	];
}

/** Join tokens that follow each other without branching into one group. */
function groupTokens(branches) {
	const children = branches.map(() => []);
	branches.forEach((branch, index) => branch.parent >= 0 && children[branch.parent].push(index));
	const byLogprob = (one, other) => other.bestLogprob - one.bestLogprob;
	const build = (first) => {
		const chain = [first];
		while (children[chain.at(-1)].length === 1) chain.push(children[chain.at(-1)][0]);
		const last = branches[chain.at(-1)];
		const childGroups = children[chain.at(-1)].map(build).sort(byLogprob);
		return {
			text: chain.map((index) => branches[index].piece).join(""),
			tokens: chain.map((index) => branches[index]),
			children: childGroups,
			won: branches[first].is_best,
			last,
			mark: last.status === "finished" ? `● ${last.rank + 1}.` : last.status === "pruned" ? "×" : "",
			bestLogprob: Math.max(last.logprob, ...childGroups.map(({ bestLogprob }) => bestLogprob)),
		};
	};
	return branches.flatMap((branch, index) => (branch.parent < 0 ? [build(index)] : [])).sort(byLogprob);
}

function flattenGroup(group) {
	return [group, ...group.children.flatMap(flattenGroup)];
}

function drawEdges(group) {
	return group.children.map((child) => {
		const [startX, endX] = [group.x + group.width + 3, child.x - 4];
		const middleX = (startX + endX) / 2;
		const strokeWidth = 0.8 + 3.4 * child.tokens[0].probability;
		return element("path", {
			class: child.won ? "branch won" : "branch",
			"stroke-width": strokeWidth,
			d: `M${startX} ${group.y}C${middleX} ${group.y} ${middleX} ${child.y} ${endX} ${child.y}`,
		});
	});
}

function drawNode(group) {
	const probabilities = group.tokens
		.map(({ piece, probability }) => `${piece} ${writeNumber(probability, 3)}`)
		.join(", ");
	return element(
		"g",
		{ class: group.won ? "won" : group.mark === "×" ? "gone" : null },
		element("title", `${probabilities}; log-probability ${writeNumber(group.last.logprob)}; ${outcome(group.last)}`),
		element("text.word", { x: group.x, y: group.y + 4.5 }, group.text),
		group.mark && element("text", { x: group.x + group.textWidth, y: group.y + 4.5 }, group.mark),
	);
}

function outcome({ status, rank }) {
	return rank === null ? status : rank === 0 ? "best" : `finished, rank ${rank + 1}`;
}
