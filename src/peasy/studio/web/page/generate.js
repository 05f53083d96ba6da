// Not furnished yet.

export const page = { name: "generate", title: "Generate", letter: "g" };

export async function open(place, state, shell) {
  place.append(shell.element("h1", {}, page.title));
  return () => {};
}
