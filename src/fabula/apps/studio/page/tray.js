// The tray: every candidate that came is kept with its branch, favourites longest. Two can be compared, any can be taken
// whole or by the line, and a branch can begin with one.

import { compare } from "./diff.js";
import { $, h, icon, keep, pictured } from "./dom.js";
import { menu } from "./menu.js";
import { note, say } from "./messages.js";
import { branch } from "./saving.js";
import { collect, keepsake, take } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

/** The first of two that are to be compared. */
let first = null;
let drawn = "";

/** A short name for what a candidate says: the same candidate is kept once. */
function idOf(lines, sentences) {
  let hash = 5381;
  for (const letter of lines.map((i) => `${i}${sentences[i].text}`).join("\n")) hash = (hash * 33 + letter.codePointAt(0)) % 2 ** 48;
  return hash.toString(36);
}

export const entryOf = (candidate, lines, request) => ({
  id: idOf(lines, candidate.sentences),
  at: Date.now(),
  lines,
  sentences: candidate.sentences.map(({ text, tag }) => ({ text, tag })),
  score: candidate.score,
  seed: request.seed,
  favourite: false,
});

/** What a finished call brought, into the tray. */
export const gather = (filling, lines, request) => change(collect, filling.candidates.map((one) => entryOf(one, lines, request)));

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
  if (await branch()) put(entry, entry.lines);
}

const fits = (entry) => entry.sentences.length === store.doc.lines.length;
const own = (i) => store.doc.lines[i].text.trim() && !store.doc.lines[i].write;

/** Lines of a kept candidate into the story; of several, those that are the writer's own stay. */
function put(entry, wanted) {
  if (!wanted.every((i) => i < store.doc.lines.length)) return note("The story has other lines now: this candidate does not fit any more.");
  const lines = wanted.length > 1 ? wanted.filter((i) => !own(i)) : wanted;
  if (!lines.length) return note("You have written all these lines yourself: take one of them alone to replace it.");
  const sentences = Object.fromEntries(lines.map((i) => [i, entry.sentences[i].text]));
  change(take, sentences, { seed: entry.seed, lines: lines.map((i) => i + 1), score: entry.score });
  const spared = wanted.length - lines.length;
  return note(spared ? `Taken; ${spared} of your own lines stayed.` : "Taken. Control Z takes it back.");
}

export function start() {
  subscribe((doc) => {
    const key = JSON.stringify([doc.tray.map(({ id, favourite }) => [id, favourite]), doc.lines.length]);
    if (key === drawn) return;
    drawn = key;
    keep($("tray"), { hidden: !doc.tray.length });
    $("tray-count").textContent = String(doc.tray.length);
    const stars = doc.tray.filter((entry) => entry.favourite);
    const open = new Set([...$("tray-list").querySelectorAll("li")].filter((item) => item.contains(document.activeElement)).map((item) => item.dataset.id));
    $("tray-list").replaceChildren(...[...stars, ...doc.tray.filter((entry) => !entry.favourite)].map(item));
    for (const id of open) $("tray-list").querySelector(`[data-id="${id}"] .star`)?.focus();
  });
}

function item(entry) {
  const { id, favourite, lines } = entry;
  const told = lines.map((i) => entry.sentences[i].text).join(" ");
  const about = told.split(/\s+/).slice(0, 5).join(" ");
  return h(
    "li",
    { class: "kept", "data-id": id },
    pictured(favourite ? "starred" : "star", favourite ? `No favourite: ${about}` : `Favourite: ${about}`, { class: "pictured star", "aria-pressed": String(favourite), onclick: () => star(entry, !favourite) }),
    h("p", { class: "words" }, told),
    h("button", { type: "button", class: "take", "aria-label": `Take: ${about}`, "aria-disabled": fits(entry) ? null : "true", title: fits(entry) ? null : "The story has other lines now", onclick: () => fits(entry) && put(entry, lines) }, "Take"),
    menu(pictured("more", `More for: ${about}`), () => [
      ...actions(entry).slice(1),
      { label: "Remove", danger: true, act: () => change(keepsake, id, null) },
    ]),
  );
}

/** Two candidates side by side, their differing words marked, each line to be taken from either. */
function side(one, two) {
  first = null;
  const lines = [...new Set([...one.lines, ...two.lines])].sort((a, b) => a - b);
  const cell = (entry, other, i, name) => {
    const text = entry.sentences[i]?.text ?? "";
    const words = text && other.sentences[i] ? compare(text, other.sentences[i].text) : [{ text, fresh: false }];
    return h(
      "td",
      { "data-side": name },
      h("p", {}, words.flatMap(({ text: word, fresh }) => [fresh ? h("mark", {}, word) : word, " "])),
      entry.lines.includes(i) ? h("button", { type: "button", class: "quiet", "aria-label": `Take line ${i + 1} of ${name}`, onclick: () => put(entry, [i]) }, icon("take"), "Take this line") : null,
    );
  };
  const head = (entry, name) =>
    h("th", { scope: "col" }, `${name} · score ${entry.score.toFixed(1).replace("-", "−")} `, h("button", { type: "button", "aria-label": `Take all of ${name}`, onclick: () => (dialog.close(), put(entry, entry.lines)) }, "Take all"));
  const dialog = h(
    "dialog",
    { class: "compare", "aria-labelledby": "compare-title" },
    h("div", { class: "dialog-head" }, h("h2", { id: "compare-title" }, "Two candidates"), pictured("close", "Close", { onclick: () => dialog.close() })),
    h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-labelledby": "compare-title" },
      h("table", {},
        h("thead", {}, h("tr", {}, h("td", {}, h("span", { class: "heard" }, "Line")), head(one, "the first"), head(two, "the second"))),
        h("tbody", {}, lines.map((i) => h("tr", {}, h("th", { scope: "row" }, String(i + 1)), cell(one, two, i, "the first"), cell(two, one, i, "the second")))),
      )),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  show({});
}
