// Not furnished yet.

export const page = { name: "experiments", title: "Experiments", letter: "e" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
