// More like one candidate, or different from those that are there: many are asked for, and the words decide which are shown.

/** Candidates that are asked for, to choose from. */
export const ASKED = 10;
/** Words of an example that are given to the model, at most. */
const EXAMPLE = 50;
/** Words that say little about what a sentence is about. */
const COMMON = new Set("a an and are as at be been but by did do for from had has have he her him his i in is it its my not of on or our she so that the their them then they this to was we were what when with you".split(" "));

const content = (text) => new Set(text.toLowerCase().match(/[\p{L}\p{N}']+/gu)?.filter((word) => !COMMON.has(word)) ?? []);

/** Shared words of content among all that either has, 0 to 1. */
export function likeness(one, other) {
  const a = content(one);
  const b = content(other);
  const both = [...a].filter((word) => b.has(word)).length;
  return both ? both / (a.size + b.size - both) : 0;
}

/** The words of a candidate at these places of the request. */
export const textOf = (candidate, lines) => lines.map((i) => candidate.sentences[i]?.text ?? "").join(" ");

/** What the model reads of an example, beside the writer's own notes; its rules keep it from repeating that word for word. */
export const example = (candidate, lines) => textOf(candidate, lines).split(/\s+/).slice(0, EXAMPLE).join(" ");

/** The `count` candidates nearest to a text, no copy of it among them, the nearest first. */
export function nearest(candidates, lines, text, count) {
  return [...candidates]
    .filter((one) => textOf(one, lines) !== text)
    .sort((a, b) => likeness(textOf(b, lines), text) - likeness(textOf(a, lines), text))
    .slice(0, count);
}

/** The `count` candidates farthest from these texts and from each other, the farthest first. */
export function farthest(candidates, lines, texts, count) {
  const seen = [...texts];
  const left = candidates.filter((one) => !texts.includes(textOf(one, lines)));
  const found = [];
  while (left.length && found.length < count) {
    const near = left.map((one) => Math.max(0, ...seen.map((text) => likeness(textOf(one, lines), text))));
    const [next] = left.splice(near.indexOf(Math.min(...near)), 1);
    seen.push(textOf(next, lines));
    found.push(next);
  }
  return found;
}
