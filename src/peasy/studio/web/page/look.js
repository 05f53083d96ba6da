// Not furnished yet.

export const page = { name: "look", title: "Look", letter: "l" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
