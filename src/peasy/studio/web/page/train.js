// Not furnished yet.

export const page = { name: "train", title: "Train", letter: "r" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
