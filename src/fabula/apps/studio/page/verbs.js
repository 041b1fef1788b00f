// The tools of the sentence at the caret: what is asked of it, and what can be done with it or with all that is selected.
// What a verb brings is offered in the text, below the sentence.

import * as api from "./api.js";
import { picks } from "./arc.js";
import { $, h, icon, keep, pictured } from "./dom.js";
import * as editor from "./editor.js";
import { modelOf, places, rewrite, usable } from "./filling.js";
import { lanesOf, partOf } from "./lanes.js";
import { menu } from "./menu.js";
import { ask, note, say } from "./messages.js";
import { said } from "./moods.js";
import { sendable } from "./people.js";
import * as state from "./state.js";
import { change, show, store, subscribe } from "./store.js";

let control = null;

const here = () => store.ui.at;
const line = () => state.lineOf(store.doc, here());
const wordCount = (text) => text.split(/\s+/).filter(Boolean).length;

/** `actions`: why(id), which lives elsewhere. */
export function start({ why }) {
  const on = (id, act) => $(id).addEventListener("click", () => line() && act());
  on("rewrite", () => rewrite(touched()));
  on("longer", () => resized(1));
  on("shorter", () => resized(-1));
  on("word", anotherWord);
  on("continue", goOn);
  on("lock", toggleLock);
  on("why", () => $("why").getAttribute("aria-disabled") || why(here()));
  menu($("sentence-more"), entries);
  $("gap").addEventListener("click", () => (editor.gapAfter(), here() && editor.focus(here())));
  // The caret stays in the text while a tool is clicked.
  $("tools").addEventListener("mousedown", (event) => event.preventDefault());
  subscribe(render);
}

/** The sentences with words that the selection touches; the one at the caret, where there is none. */
function touched() {
  const { ids } = editor.selected();
  const chosen = ids.filter((id) => state.lineOf(store.doc, id) && !state.lineOf(store.doc, id).locked);
  return chosen.length ? chosen : [here()];
}

/** Candidates of more words than stand there, or of fewer. */
function resized(by) {
  const only = touched();
  const words = only.reduce((sum, id) => sum + wordCount(state.lineOf(store.doc, id).text), 0);
  if (!words) return note("There are no words yet to make longer or shorter.");
  const count = (candidate, at) => at.reduce((sum, i) => sum + wordCount(candidate.sentences[i].text), 0);
  const at = places(store.doc, only).flatMap((place, i) => (only.includes(store.doc.lines[place].id) ? [i] : []));
  const choose = (found, most) => {
    const fitting = found.filter((one) => by * (count(one, at) - words) > 0);
    return (fitting.length ? fitting : [...found].sort((a, b) => by * (count(b, at) - count(a, at)))).slice(0, most);
  };
  const told = `The missing sentence has ${by > 0 ? "more" : "fewer"} than ${Math.round(words / only.length)} words.`;
  return rewrite(only, { choose, notes: modelOf()?.voice?.length ? [told] : [] });
}

/** A gap behind the sentence, and candidates for it. */
function goOn() {
  const at = state.numberOf(store.doc, here());
  const next = store.doc.lines[at];
  const gap = next && state.isGap(next) ? next : state.blank();
  if (gap !== next && !change(state.insert, at, [gap])) return note(`A story has at most ${state.MOST} sentences.`);
  editor.focus(gap.id);
  return rewrite([gap.id]);
}

/** The word at a character of a text: {from, to, word}, or null. */
function wordAt(text, start, end) {
  const words = [...text.matchAll(/[\p{L}\p{N}'’-]+/gu)];
  const match = words.find((one) => one.index <= start && one.index + one[0].length >= Math.max(start, end));
  return match ? { from: match.index, to: match.index + match[0].length, word: match[0] } : null;
}

const anotherWord = () => {
  const { id, start, end } = editor.selected();
  return otherWords(id, start, end);
};

/** Offers other words for the one between two characters of a sentence. */
export async function otherWords(id, start, end) {
  const { text, locked } = state.lineOf(store.doc, id);
  const place = wordAt(text, start, end);
  if (locked) return note("This sentence is locked; unlock it first.");
  if (!place) return note("Put the caret into a word first.");
  control?.abort();
  control = new AbortController();
  const words = { id, text, ...place, state: "loading", found: [] };
  show({ words, batch: store.ui.batch?.only ? null : store.ui.batch });
  const sent = places(store.doc, [id]);
  const body = {
    sentences: sent.map((at) => sendable(store.doc.lines[at].text) || null),
    line: sent.indexOf(store.doc.lines.findIndex((one) => one.id === id)) + 1,
    before: text.slice(0, place.from).trim(),
    word: place.word,
    after: text.slice(place.to).trimStart(),
    seed: store.doc.seed,
    model: usable(store.doc.model),
  };
  try {
    Object.assign(words, { found: (await api.words(body, control.signal)).words, state: "ready" });
    say(`${words.found.length} other words.`);
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    Object.assign(words, { state: "failed", message: error.message });
  }
  return store.ui.words === words ? show({}) : undefined;
}

function swap(words, other) {
  const now = state.lineOf(store.doc, words.id);
  show({ words: null });
  if (now?.text !== words.text) return note("The sentence has changed since.");
  change(state.type, words.id, words.text.slice(0, words.from) + other + words.text.slice(words.to));
  return editor.focus(words.id, words.from + other.length);
}

const panel = h("div", { class: "words-panel", contentEditable: "false", onkeydown: (event) => event.key === "Escape" && (event.stopPropagation(), show({ words: null }), editor.focus(here())) });

function draw(words) {
  const stamp = words ? `${words.id} ${words.from} ${words.word} ${words.state}` : "";
  if (panel.dataset.of === stamp) return;
  panel.dataset.of = stamp;
  const list =
    !words ? null
    : words.state === "loading" ? h("p", { role: "status" }, "Looking for other words…")
    : words.state === "failed" ? h("p", { role: "status" }, words.message)
    : words.found.length ? h("ul", { class: "alternatives" }, words.found.map((other) => h("li", {}, h("button", { type: "button", onclick: () => swap(words, other) }, other))))
    : h("p", { role: "status" }, "The model knows no other word here.");
  panel.replaceChildren(...(words ? [h("p", { class: "small" }, `Instead of “${words.word}”:`), list, pictured("close", "Close", { onclick: () => show({ words: null }) })] : []));
  editor.hang("words", words?.id ?? null, panel);
}

function toggleLock() {
  const { id, locked } = line();
  if (change(state.lock, id, !locked)) say(locked ? "Unlocked." : "Locked.");
  else note("A gap has nothing to lock.");
}

async function openWith({ id, start, locked }) {
  if (locked) return note("This sentence is locked; unlock it first.");
  const words = await ask("It begins with these words", null, [{ label: "Cancel", value: null }, { label: "Set", value: true, primary: true }], start);
  if (words === null) return undefined;
  change(state.open, id, words.trim());
  return state.isGap(line()) ? undefined : change(state.mark, id, Boolean(words.trim()));
}

function entries() {
  const one = line();
  const { lines } = store.doc;
  const at = lines.indexOf(one);
  const add = (place, fields = {}) => {
    const gap = state.blank(fields);
    if (change(state.insert, place, [gap])) editor.focus(gap.id);
  };
  return [
    { label: one.write ? "Keep as it is" : "Mark to be written anew", act: () => change(state.mark, one.id, !one.write), disabled: one.locked || state.isGap(one) },
    { label: "Opening words…", act: () => openWith(one), disabled: one.locked },
    { label: "Gap before", act: () => add(at, { paragraph: one.paragraph }), disabled: lines.length >= state.MOST },
    { label: "Gap after", hint: "Alt ⏎", act: () => add(at + 1), disabled: lines.length >= state.MOST },
    { label: "Move up", hint: "Alt ↑", act: () => change(state.move, one.id, -1), disabled: at === 0 },
    { label: "Move down", hint: "Alt ↓", act: () => change(state.move, one.id, 1), disabled: at === lines.length - 1 },
    { label: "Remove", act: () => change(state.remove, one.id), disabled: one.locked || lines.length < 2, danger: true },
  ];
}

const SAYS = { locked: "locked", gap: "a gap", marked: "to be written anew", kept: "" };

function render(doc, ui) {
  if (ui.words && !state.lineOf(doc, ui.words.id)) ui.words = null;
  draw(ui.words);
  const one = state.lineOf(doc, ui.at);
  keep($("tools"), { hidden: !one });
  if (!one) return;
  const kind = one.locked ? "locked" : state.isGap(one) ? "gap" : one.write ? "marked" : "kept";
  keep($("sentence-name"), { textContent: `Sentence ${state.numberOf(doc, one.id)}${SAYS[kind] && `, ${SAYS[kind]}`}${one.start ? `, begins with “${one.start}”` : ""}` });
  const gap = kind === "gap";
  for (const id of ["longer", "shorter", "word", "why", "lock"]) keep($(id), { "aria-disabled": gap ? "true" : null });
  // A model on a server gives no probabilities of given words.
  if (modelOf(doc, ui)?.voice?.length) keep($("why"), { "aria-disabled": "true", title: "The model that is chosen cannot explain" });
  else keep($("why"), { title: "" });
  keep($("rewrite"), { "aria-disabled": one.locked ? "true" : null });
  keep($("rewrite").lastElementChild, { textContent: gap ? "Write" : "Rewrite" });
  keep($("lock"), { "aria-pressed": String(one.locked), title: one.locked ? "Unlock" : "Lock: keep it word for word", "aria-label": one.locked ? "Locked" : "Lock" });
  if ($("lock").dataset.of !== kind) ($("lock").dataset.of = kind), $("lock").replaceChildren(icon(one.locked ? "lock" : "unlock"));
  chips(one, ui);
}

/** A chip for every lane, which opens its labels. */
function chips(one, ui) {
  const lanes = lanesOf(ui);
  const box = $("chips");
  if (box.dataset.of !== lanes.map(({ title }) => title).join()) {
    box.dataset.of = lanes.map(({ title }) => title).join();
    box.replaceChildren(...lanes.map((_, lane) => menu(h("button", { type: "button", class: "quiet" }), () => picks(line(), lane, lane))));
  }
  lanes.forEach(({ title }, lane) => keep(box.children[lane], { textContent: `${title}: ${said(partOf(one.tag, lane, lanes.length))}` }));
}
