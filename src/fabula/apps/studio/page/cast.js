// Who is in the story and what holds in it: people with their pronouns, places, facts. The model reads it before the
// first line and keeps to it; no line shows it. People and places that the lines name are offered.

import * as api from "./api.js";
import { $, h, keep, pictured } from "./dom.js";
import { aside, usable } from "./filling.js";
import { named, rowsOf, sendable } from "./people.js";
import { say } from "./messages.js";
import { PERSON, SENTENCES, STORY } from "./schema.js";
import { set } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

/** A moment after the last change of the lines. */
const PAUSE = 900;
/** Typing that rests so long is a step. */
const SETTLE = 250;
const MOST = STORY.people.maxItems;
const PRONOUNS = [["", "–"], ["he", "he"], ["she", "she"], ["they", "they"]];

export function start() {
  $("cast-add").addEventListener("click", () => add({ name: "", pronoun: null, about: "" }, true));
  $("cast-notes").addEventListener("input", () => soon(() => change(set, { notes: $("cast-notes").value })));
  for (const moment of ["pagehide", "visibilitychange", "beforeunload"]) addEventListener(moment, settle);
  $("cast").addEventListener("focusout", settle);
  subscribe(render);
  watch();
}

/** What was typed and is not the story's yet. */
let waiting = null;
let timer = null;

/** Does this at a pause: the browser's own undo, and ours, go by pauses too. */
function soon(work) {
  clearTimeout(timer);
  waiting = work;
  timer = setTimeout(settle, SETTLE);
}

function settle() {
  clearTimeout(timer);
  const work = waiting;
  waiting = null;
  work?.();
}

function add(person, focus = false) {
  settle();
  if (store.doc.people.length >= MOST) return say(`A story has at most ${MOST} people here.`);
  change(set, { people: [...store.doc.people, person] });
  if (focus) $("cast-people").lastElementChild?.querySelector("input")?.focus();
  return say(person.name ? `${person.name} is in the cast.` : "A person was added.");
}

const edit = (i, part) => change(set, { people: store.doc.people.map((person, at) => (at === i ? { ...person, ...part } : person)) });

function remove(i) {
  settle();
  const { name } = store.doc.people[i];
  change(set, { people: store.doc.people.filter((_, at) => at !== i) });
  const rows = $("cast-people").children;
  (rows[Math.min(i, rows.length - 1)]?.querySelector("input") ?? $("cast-add")).focus();
  say(name ? `${name} is out of the cast.` : "Removed.");
}

function render(doc, ui) {
  const count = named(doc).length + rowsOf(doc).length;
  keep($("cast-count"), { textContent: count ? ` (${count})` : "" });
  if (!waiting) keep($("cast-notes"), { value: doc.notes });
  const list = $("cast-people");
  while (list.children.length > doc.people.length) list.lastElementChild.remove();
  while (list.children.length < doc.people.length) list.append(row(list.children.length));
  doc.people.forEach((person, i) => {
    const [name, pronoun, about] = list.children[i].querySelectorAll("input, select");
    keep(pronoun, { value: person.pronoun ?? "" });
    if (!waiting) keep(name, { value: person.name });
    if (!waiting) keep(about, { value: person.about });
  });
  offers(doc, ui.mentions);
}

function row(i) {
  return h(
    "li",
    { class: "person" },
    h("input", { type: "text", "aria-label": `Name of person ${i + 1}`, placeholder: "Name", maxLength: PERSON.name.maxLength, autocomplete: "off", oninput: ({ target }) => soon(() => edit(i, { name: target.value })) }),
    h("select", { "aria-label": `Pronoun of person ${i + 1}`, onchange: (event) => edit(i, { pronoun: event.target.value || null }) }, PRONOUNS.map(([value, label]) => h("option", { value }, label))),
    h("input", { type: "text", class: "about", "aria-label": `Who person ${i + 1} is`, placeholder: "a shy baker", maxLength: PERSON.about.maxLength, autocomplete: "off", oninput: ({ target }) => soon(() => edit(i, { about: target.value })) }),
    pictured("close", `Remove person ${i + 1}`, { onclick: () => remove(i) }),
  );
}

/** Buttons for whom and what the lines name and the cast does not. */
function offers(doc, mentions) {
  const known = new Set(doc.people.map((person) => person.name.trim().toLowerCase()));
  const people = (mentions?.people ?? []).filter((person) => !known.has(person.name.toLowerCase()));
  const places = (mentions?.places ?? []).filter((place) => !doc.notes.includes(place));
  const key = JSON.stringify([people, places]);
  const box = $("cast-found");
  if (box.dataset.of === key) return;
  box.dataset.of = key;
  keep(box, { hidden: !people.length && !places.length });
  box.replaceChildren(
    h("span", { class: "small" }, "In your lines:"),
    ...people.map((person) => h("button", { type: "button", class: "quiet", onclick: () => add({ ...person }) }, `+ ${person.name}${person.pronoun ? ` (${person.pronoun})` : ""}`)),
    ...places.map((place) => h("button", { type: "button", class: "quiet", onclick: () => (change(set, { notes: [store.doc.notes.trimEnd(), `It is set in ${place}.`].filter(Boolean).join("\n") }), say(`${place} is noted.`)) }, `+ ${place}`)),
  );
}

/** Asks whom the lines name, a moment after they changed. */
function watch() {
  let timer = null;
  let asked = "";
  subscribe((doc, ui) => {
    const sentences = doc.lines.map((line) => sendable(line.text)).filter(Boolean).slice(-SENTENCES); // as many as the server reads
    const key = JSON.stringify([sentences, ui.model]);
    if (key === asked || !ui.model) return;
    asked = key;
    clearTimeout(timer);
    const again = async () => {
      if (asked !== key) return;
      try {
        const mentions = sentences.length ? await api.mentions({ sentences, model: usable(store.doc.model) }) : null;
        if (asked === key) show({ mentions });
      } catch (error) {
        // Only an offer: where the server is busy it comes later.
        if (asked === key && (error.gone || error.status === 429)) timer = setTimeout(again, 1000 * Math.max(5, error.wait ?? 0));
      }
    };
    timer = setTimeout(() => aside(again), PAUSE);
  });
}
