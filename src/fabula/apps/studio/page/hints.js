// A lane with many labels, such as emotions or classes of verbs, has no left and right: each line has a list to choose from.

import { h, keep } from "./dom.js";
import { inView } from "./lanes.js";
import { said } from "./moods.js";
import { bend } from "./state.js";
import { change, store } from "./store.js";

/** A lane of more labels than this has lists in place of the curve. */
const MOST = 5;

/** Labels whose probabilities are told. */
const TOLD = 3;

export const isListed = (labels) => labels.length > MOST;

/** The list of line i. */
export function hint(i) {
  return h("select", {
    class: "hint",
    onpointerdown: (event) => event.stopPropagation(),
    onchange: (event) => change(bend, i, inView(store.doc, store.ui).whole(i, event.target.value || null)),
  });
}

export function patchHint(select, line, i, { labels, name, posterior }) {
  if (!isListed(labels)) return;
  const belief = posterior?.[i];
  const likely = belief ? [...labels].sort((a, b) => (belief[b] ?? 0) - (belief[a] ?? 0)).slice(0, TOLD) : [];
  if (select.dataset.of !== labels.join()) {
    select.dataset.of = labels.join();
    select.replaceChildren(h("option", { value: "" }), ...labels.map((label) => h("option", { value: label }, said(label))));
  }
  keep(select.firstChild, { textContent: belief ? `free (${said(likely[0])})` : "free" });
  const told = likely.map((label) => `${said(label)} ${Math.round(100 * (belief[label] ?? 0))} %`).join(", ");
  keep(select, { title: told && `Where it is free, the model expects ${told}`, "aria-label": `${name} of sentence ${i + 1}`, value: line.tag ?? "" });
}
