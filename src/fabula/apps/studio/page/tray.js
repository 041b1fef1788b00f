// The tray: every candidate that came is kept with its branch, favourites longest. Two can be compared, any can be taken
// whole or by the sentence, and a branch can begin with one.

import { compare } from "./diff.js";
import { $, h, icon, keep, pictured } from "./dom.js";
import { menu } from "./menu.js";
import { note, say } from "./messages.js";
import { branch } from "./saving.js";
import { collect, hash, keepsake, lineOf, numberOf, take } from "./state.js";
import { change, store, subscribe } from "./store.js";

/** The first of two that are to be compared. */
let first = null;
let drawn = "";

/** A candidate as it is kept, once: its words by the ids of the lines that they were written for. */
export function entryOf(candidate, { ids, writes, request }) {
  const sentences = Object.fromEntries(writes.map((at) => [ids[at], candidate.sentences[at].text]));
  return { id: hash(Object.entries(sentences).flat().join("\n")), at: Date.now(), sentences, score: candidate.score, seed: request.seed, favourite: false };
}

/** What a finished call brought, into the tray. */
export const gather = (batch) => change(collect, batch.filling.candidates.map((one) => entryOf(one, batch)));

const known = (id) => store.doc.tray.find((entry) => entry.id === id);

/** What a menu offers for a candidate, on its card or in the tray. */
export function actions(entry) {
  const kept = known(entry.id);
  const favourite = kept?.favourite ?? false;
  return [
    { label: favourite ? "No favourite any more" : "Keep as a favourite", act: () => star(entry, !favourite) },
    { label: "Branch from this", act: () => branchFrom(entry) },
    first && first.id !== entry.id
      ? { label: "Compare with the first", act: () => side(first, entry) }
      : { label: "Compare with another…", act: () => ((first = entry), note("Now choose “Compare with the first” at another candidate.")) },
  ];
}

export function star(entry, favourite) {
  if (!known(entry.id)) change(collect, [entry]);
  change(keepsake, entry.id, { favourite });
  say(favourite ? "Kept as a favourite." : "No favourite any more.");
}

async function branchFrom(entry) {
  if (await branch()) put(entry, Object.keys(entry.sentences));
}

const standing = ({ sentences }) => Object.keys(sentences).filter((id) => lineOf(store.doc, id));
/** Whether a sentence has words that no kept candidate has there. */
const isOwn = (id) => {
  const { text, write } = lineOf(store.doc, id);
  return Boolean(text.trim()) && !write && !store.doc.tray.some(({ sentences }) => sentences[id] === text);
};

/** Sentences of a kept candidate into the story; of several, those that are the writer's own stay. */
function put(entry, wanted) {
  const there = standing(entry).filter((id) => wanted.includes(id) && !lineOf(store.doc, id).locked);
  const lines = wanted.length > 1 ? there.filter((id) => !isOwn(id)) : there;
  if (!there.length) return note("The sentences that this was written for are gone, or locked.");
  if (!lines.length) return note("All these sentences have words: take one of them alone to replace it.");
  const sentences = Object.fromEntries(lines.map((id) => [id, entry.sentences[id]]));
  change(take, sentences);
  const spared = wanted.length - lines.length;
  return note(spared ? `Taken; ${spared} of the sentences stayed as they are.` : "Taken. Control Z takes it back.");
}

export function start() {
  subscribe((doc) => {
    const key = JSON.stringify([doc.tray.map(({ id, favourite }) => [id, favourite]), doc.lines.map(({ id }) => id)]);
    if (key === drawn) return;
    drawn = key;
    keep($("tray"), { hidden: !doc.tray.length });
    $("tray-count").textContent = String(doc.tray.length);
    const stars = doc.tray.filter((entry) => entry.favourite);
    const open = new Set([...$("tray-list").querySelectorAll("li")].filter((item) => item.contains(document.activeElement)).map((item) => item.dataset.id));
    $("tray-list").replaceChildren(...[...stars, ...doc.tray.filter((entry) => !entry.favourite)].map(item));
    for (const id of open) $("tray-list").querySelector(`[data-id="${CSS.escape(id)}"] .star`)?.focus();
  });
}

function item(entry) {
  const { id, favourite } = entry;
  const text = Object.values(entry.sentences).join(" ");
  const about = text.split(/\s+/).slice(0, 5).join(" ");
  const fits = standing(entry).length > 0;
  return h(
    "li",
    { class: "kept", "data-id": id },
    pictured(favourite ? "starred" : "star", favourite ? `No favourite: ${about}` : `Favourite: ${about}`, { class: "pictured star", "aria-pressed": String(favourite), onclick: () => star(entry, !favourite) }),
    h("p", { class: "words" }, text),
    h("button", { type: "button", class: "take", "aria-label": `Take: ${about}`, "aria-disabled": fits ? null : "true", title: fits ? null : "The sentences that this was written for are gone", onclick: () => fits && put(entry, Object.keys(entry.sentences)) }, "Take"),
    menu(pictured("more", `More for: ${about}`), () => [
      ...actions(entry).slice(1),
      { label: "Remove", danger: true, act: () => change(keepsake, id, null) },
    ]),
  );
}

/** Two candidates side by side, their differing words marked, each sentence to be taken from either. */
function side(one, two) {
  first = null;
  const ids = [...new Set([...standing(one), ...standing(two)])].sort((a, b) => numberOf(store.doc, a) - numberOf(store.doc, b));
  const cell = (entry, other, id, name) => {
    const text = entry.sentences[id] ?? "";
    const words = text && other.sentences[id] ? compare(text, other.sentences[id]) : [{ text, fresh: false }];
    return h(
      "td",
      { "data-side": name },
      h("p", {}, words.flatMap(({ text: word, fresh }) => [fresh ? h("mark", {}, word) : word, " "])),
      text ? h("button", { type: "button", class: "quiet", "aria-label": `Take sentence ${numberOf(store.doc, id)} of ${name}`, onclick: () => put(entry, [id]) }, icon("take"), "Take this sentence") : null,
    );
  };
  const head = (entry, name) =>
    h("th", { scope: "col" }, `${name} `, h("button", { type: "button", "aria-label": `Take all of ${name}`, onclick: () => (dialog.close(), put(entry, Object.keys(entry.sentences))) }, "Take all"));
  const dialog = h(
    "dialog",
    { class: "compare", "aria-labelledby": "compare-title" },
    h("div", { class: "dialog-head" }, h("h2", { id: "compare-title" }, "Two candidates"), pictured("close", "Close", { onclick: () => dialog.close() })),
    h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-labelledby": "compare-title" },
      h("table", {},
        h("thead", {}, h("tr", {}, h("td", {}, h("span", { class: "heard" }, "Sentence")), head(one, "the first"), head(two, "the second"))),
        h("tbody", {}, ids.map((id) => h("tr", {}, h("th", { scope: "row" }, String(numberOf(store.doc, id))), cell(one, two, id, "the first"), cell(two, one, id, "the second")))),
      )),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
