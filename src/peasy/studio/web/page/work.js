// Not furnished yet.

export const page = { name: "work", title: "Work", letter: "w" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
