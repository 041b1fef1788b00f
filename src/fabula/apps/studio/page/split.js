// A text falls into paragraphs, and a paragraph into sentences.

const SHORT = /(?:^|[\s("'“‘])(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|No|Mt|Capt|Col|Gen|Lt|Sgt|[A-Z]|e\.g|i\.e|a\.m|p\.m)\.$/;
// The look behind keeps a long run of dots from being tried again at each of them.
const END = /(?<![.!?…])[.!?…]+["'”’)\]]*\s+(?=["'“‘(]?[\p{Lu}\p{N}])/gu;

/** The places where a new sentence begins, the first one left out. */
export function beginnings(text) {
  const places = [];
  let from = 0;
  for (const match of text.matchAll(END)) {
    if (SHORT.test(text.slice(from, match.index + 1))) continue;
    from = match.index + match[0].length;
    places.push(from);
  }
  return places;
}

/** The sentences of one row of text. */
function sentences(text) {
  const places = [0, ...beginnings(text), text.length];
  return places.slice(1).map((to, at) => text.slice(places[at], to).trim()).filter(Boolean);
}

const tidy = (row) => row.replace(/\s+/g, " ").trim();

/** Paragraphs of sentences: every row of the text is one; `_` alone is a gap in the paragraph before, as on the command line. */
export function paragraphs(text) {
  const result = [];
  for (const row of text.replaceAll("\r\n", "\n").replaceAll("\r", "\n").split("\n").map(tidy)) {
    if (row === "_") result.at(-1)?.push("") ?? result.push([""]);
    else if (row) result.push(sentences(row));
  }
  return result;
}
