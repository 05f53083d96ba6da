// Not furnished yet.

export const page = { name: "models", title: "Models", letter: "o" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
