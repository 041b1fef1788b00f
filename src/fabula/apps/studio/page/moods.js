// How the labels of a model are called, ordered and coloured.

const SAID = { negative: "sad", neutral: "neither", positive: "glad", forgive: "forgive or thank", emote: "cry or laugh" };
const SIGNS = { negative: "-", neutral: ".", positive: "+" };
export const FREE = "?";

export const said = (label) => (label === null ? "free" : (SAID[label] ?? label));

/** The sign of the command line's arcs, or the label's own name where there is none. */
export const sign = (label) => (label === null ? FREE : (SIGNS[label] ?? label));

/** What an arc's sign or name stands for among these labels; undefined where it is neither. */
export function unsign(word, labels) {
  if (word === FREE) return null;
  return labels.find((label) => label === word || SIGNS[label] === word || SAID[label] === word);
}

/** Where a label lies between 0 and 1. */
export const place = (label, labels) => (labels.length > 1 ? labels.indexOf(label) / (labels.length - 1) : 0.5);

/** Colours are by place: low, middle, high. */
export function hue(label, labels) {
  const at = place(label, labels);
  if (label === null || at < 0) return "free";
  return at < 0.34 ? "low" : at > 0.66 ? "high" : "middle";
}
