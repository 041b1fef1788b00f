// What a critic says of a candidate, where the answer has it:
// `critic: {holds_together, leads_to_ending, reads_easily, weakest}`, shares from 0 to 1 and the number of a sentence from 1.

import { h } from "./dom.js";

const SAYS = [
  ["holds_together", "holds together"],
  ["leads_to_ending", "leads to the ending"],
  ["reads_easily", "reads easily"],
];

const isShare = (value) => typeof value === "number" && value >= 0 && value <= 1;

const word = (share) => (share >= 2 / 3 ? "yes" : share >= 1 / 3 ? "partly" : "hardly");

/** The line that the critic finds weakest, from 0; null where nothing is said of it. */
export function weakest({ critic, sentences }) {
  const at = critic?.weakest;
  return Number.isInteger(at) && at >= 1 && at <= sentences.length ? at - 1 : null;
}

/** Its verdicts in a row; null where there are none. */
export function verdicts({ critic }) {
  const told = SAYS.filter(([name]) => isShare(critic?.[name]));
  if (!told.length) return null;
  return h(
    "ul",
    { class: "verdicts", "aria-label": "What the critic says" },
    told.map(([name, says]) => h("li", { "data-word": word(critic[name]), title: `${Math.round(100 * critic[name])} %` }, `${says}: ${word(critic[name])}`)),
  );
}
