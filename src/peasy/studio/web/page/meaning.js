// Not furnished yet.

export const page = { name: "meaning", title: "Meaning", letter: "m" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
