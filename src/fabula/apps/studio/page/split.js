// A paragraph falls into sentences.

const SHORT = /(?:^|[\s("'“‘])(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|No|Mt|Capt|Col|Gen|Lt|Sgt|[A-Z]|e\.g|i\.e|a\.m|p\.m)\.$/;
// The look behind keeps a long run of dots from being tried again at each of them.
const END = /(?<![.!?…])[.!?…]+["'”’)\]]*\s+(?=["'“‘(]?[\p{Lu}\p{N}])/gu;

/** The sentences of one line of text. */
function sentences(text) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(END)) {
    const to = match.index + match[0].length;
    if (SHORT.test(text.slice(from, match.index + 1))) continue;
    found.push(text.slice(from, to).trim());
    from = to;
  }
  found.push(text.slice(from).trim());
  return found.filter(Boolean);
}

/** Every line of its own is at least one sentence; `_` alone is a blank one, as on the command line. */
export function split(text) {
  return text
    .replaceAll("\r", "")
    .split("\n")
    .flatMap((line) => (line.trim() === "_" ? [""] : sentences(line.replace(/\s+/g, " ").trim())));
}
