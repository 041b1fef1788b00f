// What a candidate was chosen by, where the answer has it: `parts: {holds_together, leads_to_ending, reads_easily, weakest}`,
// the critic's log-odds, mean log-probabilities of a word, and the number of a sentence from 1.

import { h } from "./dom.js";

const SAYS = [
  ["holds_together", "holds together"],
  ["leads_to_ending", "leads to the ending"],
  ["reads_easily", "reads easily"],
];

const EASY = -1;
const HARD = -4;

/** A part as a share from 0 to 1: log-odds by their probability, words between hard and easy ones; null where there is none. */
function share(parts, name) {
  const value = parts?.[name];
  if (typeof value !== "number") return null;
  if (name === "holds_together") return 1 / (1 + Math.exp(-value));
  return Math.min(1, Math.max(0, (value - HARD) / (EASY - HARD)));
}

const word = (share) => (share >= 2 / 3 ? "yes" : share >= 1 / 3 ? "partly" : "hardly");

/** Whether the critic finds this sentence the weakest of a candidate that does not hold together. */
export const isWeak = ({ parts }, at) => parts?.weakest === at + 1 && share(parts, "holds_together") < 1 / 3;

/** Its verdicts in a row; null where there are none. */
export function verdicts({ parts }) {
  const told = SAYS.map(([name, says]) => [says, share(parts, name)]).filter(([, value]) => value !== null);
  if (parts?.holds_together == null) return null;
  return h(
    "ul",
    { class: "verdicts", "aria-label": "What the critic says" },
    told.map(([says, value]) => h("li", { "data-word": word(value), title: `${Math.round(100 * value)} %` }, `${says}: ${word(value)}`)),
  );
}
