// Find and replace, in the words of the whole story.

import { $, keep } from "./dom.js";
import * as editor from "./editor.js";
import { note } from "./messages.js";
import { lineOf, set } from "./state.js";
import { change, show, store } from "./store.js";

/** The match that is selected: its place among all. */
let current = -1;

export function start() {
  $("search-open").addEventListener("click", open);
  $("search-close").addEventListener("click", close);
  $("search-for").addEventListener("input", () => ((current = -1), count()));
  $("search-next").addEventListener("click", () => step(1));
  $("search-back").addEventListener("click", () => step(-1));
  $("search-one").addEventListener("click", replaceOne);
  $("search-all").addEventListener("click", replaceAll);
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && event.target === $("search-for")) step(event.shiftKey ? -1 : 1);
    else if (event.key === "Enter" && event.target === $("search-with")) replaceOne();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

export function open() {
  $("search").hidden = false;
  $("search-for").select();
  $("search-for").focus();
  count();
}

function close() {
  $("search").hidden = true;
  const { id, from } = store.ui.found ?? { id: store.ui.at, from: null };
  show({ found: null });
  if (id) editor.focus(id, from);
}

/** Every place where the words stand, upper and lower case alike: [{id, from, to}]. */
function matches() {
  const words = $("search-for").value.toLowerCase();
  if (!words) return [];
  return store.doc.lines.flatMap(({ id, text }) => {
    const places = [];
    const lower = text.toLowerCase();
    for (let at = lower.indexOf(words); at >= 0; at = lower.indexOf(words, at + words.length)) places.push({ id, from: at, to: at + words.length });
    return places;
  });
}

function count() {
  const { length } = matches();
  keep($("search-count"), { textContent: !$("search-for").value ? "" : length ? `${current >= 0 ? `${current + 1} of ` : ""}${length}` : "not there" });
}

function step(by) {
  const all = matches();
  if (!all.length) return count();
  current = (current + by + all.length + (current < 0 && by < 0 ? 1 : 0)) % all.length;
  const { id, from, to } = all[current];
  editor.select(id, from, to);
  return count();
}

/** The lines with some matches replaced; locked ones stay. */
function replaced(chosen) {
  const by = $("search-with").value;
  return store.doc.lines.map((line) => {
    if (line.locked) return line;
    const own = chosen.filter(({ id }) => id === line.id).reverse();
    return own.length ? { ...line, text: own.reduce((text, { from, to }) => text.slice(0, from) + by + text.slice(to), line.text) } : line;
  });
}

/** Replaces what is selected, and goes on to the next. */
function replaceOne() {
  const one = matches()[current];
  const { id, start, end } = editor.selected();
  if (!one || one.id !== id || one.from !== start || one.to !== end) return step(1);
  if (lineOf(store.doc, id).locked) note("This sentence is locked; unlock it first.");
  // Words that hold what is searched for are not found again in themselves.
  else if (change(set, { lines: replaced([one]) })) current += $("search-with").value.toLowerCase().split($("search-for").value.toLowerCase()).length - 2;
  return step(1);
}

function replaceAll() {
  const all = matches();
  const locked = new Set(store.doc.lines.filter((line) => line.locked).map(({ id }) => id));
  const free = all.filter(({ id }) => !locked.has(id));
  if (free.length) change(set, { lines: replaced(free) });
  current = -1;
  count();
  note(`${free.length} replaced.${free.length < all.length ? ` ${all.length - free.length} in locked sentences stayed.` : ""}`);
}
