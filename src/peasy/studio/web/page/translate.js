// Not furnished yet.

export const page = { name: "translate", title: "Translate", letter: "t" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
