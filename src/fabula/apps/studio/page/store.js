// The one place where the page's state lives. `doc` is the story (state.js), `ui` what is shown around it.
// Whoever renders subscribes; whoever acts calls `change` or `show`. Everything flows one way.

import { empty } from "./state.js";

const listeners = new Set();

export const store = {
  doc: empty(),
  ui: {
    title: "",
    /** Of the mood, the first of the things that the model says of a sentence. */
    labels: ["negative", "neutral", "positive"],
    /** All of them, where there are several: [{name, labels}], or null. */
    factors: null,
    model: "",
    models: [],
    /** What the model believes about every point: [{label: probability}], or null. */
    posterior: null,
    /** The same of everything else that it says of a sentence: [{name: {label: probability}}], or null. */
    beliefs: null,
    /** Whom and what the lines name (cast.js), or null. */
    mentions: null,
    /** The sentences at the caret and under the pointer, by id, or null. */
    at: null,
    over: null,
    /** A candidate shown in place: {sentences: {id: text}, tags: {id: label}}, or null. */
    preview: null,
    /** The last call for candidates (filling.js), or null. */
    batch: null,
    /** The open explanation (why.js), or null. */
    why: null,
    /** Words that were searched for: {id, from, to}, or null. */
    found: null,
    /** Other words for one of a sentence (verbs.js), or null. */
    words: null,
    /** The story and branch on the server, or null while nothing was saved. */
    story: null,
    branch: null,
    branches: [],
    saved: "new",
  },
};

/** One part that fails keeps no other from hearing: what is typed is saved whatever cannot be drawn. */
function tell() {
  for (const listener of listeners)
    try {
      listener(store.doc, store.ui);
    } catch (error) {
      reportError(error);
    }
}

export function subscribe(listener) {
  listeners.add(listener);
  listener(store.doc, store.ui);
}

/** What the editor has made of the document. */
export function receive(doc) {
  store.doc = doc;
  tell();
}

/** The document after `step`, a function of state.js with its arguments: change(type, id, "Then it rained."). */
export function change(step, ...rest) {
  const next = step(store.doc, ...rest);
  if (next === store.doc) return false;
  store.doc = next;
  tell();
  return true;
}

export function show(patch) {
  Object.assign(store.ui, patch);
  tell();
}
