// Candidates as cards: beside the story for its gaps, in the text for one sentence. Looking at one (pointer or focus) shows it
// in place; a click takes it, and only a click.

import { compare } from "./diff.js";
import { $, h, icon, keep, pictured } from "./dom.js";
import { isWeak, verdicts } from "./critic.js";
import { focus, hang } from "./editor.js";
import { different, moreLike, stop } from "./filling.js";
import { menu } from "./menu.js";
import { hue, place, said } from "./moods.js";
import { note, say } from "./messages.js";
import { named, noted, sendable } from "./people.js";
import { isWritten, lineOf, numberOf, take } from "./state.js";
import { change, show, store, subscribe } from "./store.js";
import { actions, entryOf, gather } from "./tray.js";

/** More new words than this, and marking them would say nothing. */
const MOSTLY = 0.7;

/** Only beside the story: in one column a preview above would push the card away from the pointer. */
const BESIDE = matchMedia("(min-width: 68.01rem)");

const list = $("cards");
/** Candidates for a sentence stand in the text, below it. */
const inPlace = h("div", { class: "in-place", contentEditable: "false" }, h("p", { class: "small waiting", role: "status" }, "Writing…"), pictured("close", "Close the candidates", { onclick: () => dismiss() }));

let shown = null;
let looking = null;
let act = {};

/** `actions`: copyLink(request). */
export function start(actions) {
  act = actions;
  // Only a pointer that moves looks: cards that appear under a resting one are not meant.
  list.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" && (event.movementX || event.movementY)) look(event.target);
  });
  list.addEventListener("pointerleave", () => leave());
  list.addEventListener("focusin", (event) => look(event.target));
  list.addEventListener("focusout", (event) => list.contains(event.relatedTarget) || leave());
  inPlace.addEventListener("keydown", (event) => event.key === "Escape" && (event.stopPropagation(), dismiss()));
  subscribe(render);
}

/** The lines of a batch that are still in the story: their place in the request and their id. */
const standing = (batch, doc) => batch.writes.flatMap((at) => (lineOf(doc, batch.ids[at]) ? [{ at, id: batch.ids[at] }] : []));

/** The candidate of this batch whose words stand in a line, or -1. */
const takenFrom = ({ filling }, at, text) => (filling?.candidates ?? []).findIndex((one) => one.sentences[at].text === text);

/** Whether a line was written by hand since the candidates were asked for: it is not theirs to replace. */
const isOwn = (batch, doc, { at, id }) => {
  const { text, write } = lineOf(doc, id);
  return Boolean(text.trim()) && !write && text !== batch.before[id] && takenFrom(batch, at, text) < 0;
};

/** Whether what was given, and the arc, are still what stands there. */
const isCurrent = (batch, doc) => {
  const { sentences, arc, people, notes } = batch.request;
  const remarks = noted(doc);
  // What follows the writer's notes is an example that more are to be like.
  if (JSON.stringify([people ?? [], (notes ?? []).slice(0, remarks.length)]) !== JSON.stringify([named(doc), remarks])) return false;
  return batch.ids.every((id, at) => {
    const line = lineOf(doc, id);
    if (!line || (arc?.[at] ?? null) !== line.tag) return false;
    return sentences[at] === null ? !batch.writes.includes(at) || !isOwn(batch, doc, { at, id }) : sentences[at] === sendable(line.text);
  });
};

function look(target) {
  const card = target.closest(".card");
  if (!card?.dataset.number) return;
  const number = Number(card.dataset.number);
  if (looking === number) return;
  looking = number;
  const { batch } = store.ui;
  const candidate = shown?.candidates[number];
  if (!candidate || !BESIDE.matches || batch.only) return;
  const free = standing(batch, store.doc).filter((one) => !lineOf(store.doc, one.id).locked && !isOwn(batch, store.doc, one));
  const sentences = Object.fromEntries(free.map(({ at, id }) => [id, candidate.sentences[at].text]));
  show({ preview: { sentences, tags: Object.fromEntries(batch.ids.map((id, at) => [id, candidate.sentences[at].tag])) } });
}

function leave() {
  looking = null;
  if (store.ui.preview) show({ preview: null });
  else render(store.doc, store.ui);
}

export function dismiss() {
  const { batch } = store.ui;
  stop();
  if (batch?.filling) gather(batch); // what came is kept
  show({ batch: null, preview: null });
  if (store.ui.at) focus(store.ui.at);
}

const sentencesAt = (numbers) => `${numbers.length === 1 ? "Sentence" : "Sentences"} ${numbers.join(", ")}`;

function taken(number, wanted) {
  const { batch } = store.ui;
  const candidate = shown.candidates[number];
  const there = standing(batch, store.doc).filter(({ at }) => wanted.includes(at));
  const isLocked = ({ id }) => lineOf(store.doc, id).locked;
  const spared = there.filter((one) => isLocked(one) || (wanted.length > 1 && isOwn(batch, store.doc, one)));
  const lines = there.filter((one) => !spared.includes(one));
  if (!lines.length) return note(there.some(isLocked) ? "This sentence is locked; unlock it first." : there.length ? "You have written all these sentences yourself since: take one of them alone to replace it." : "The sentence that this was written for is gone.");
  // Sentences that were chosen one by one from several candidates are worth a word before they go.
  const sources = lines.map(({ at, id }) => takenFrom(batch, at, lineOf(store.doc, id).text));
  const mixed = wanted.length > 1 && new Set(sources).size > 1 ? lines.filter((_, i) => sources[i] >= 0 && sources[i] !== number) : [];
  const sentences = Object.fromEntries(lines.map(({ at, id }) => [id, candidate.sentences[at].text]));
  store.ui.preview = null;
  change(take, sentences);
  const gone = batch.writes.length - standing(batch, store.doc).length;
  const numbers = (some) => some.map(({ id }) => numberOf(store.doc, id));
  const remarks = [
    spared.length ? `${sentencesAt(numbers(spared))} ${spared.length === 1 ? "stays as you wrote it" : "stay as you wrote them"} since, or locked.` : "",
    mixed.length ? `${sentencesAt(numbers(mixed))}, taken from another candidate, ${mixed.length === 1 ? "was" : "were"} replaced: Control Z takes that back.` : "",
    gone && wanted.length > 1 ? `${gone === 1 ? "One sentence that was" : `${gone} sentences that were`} written for ${gone === 1 ? "is" : "are"} gone.` : "",
  ].filter(Boolean);
  if (batch.only) dismiss();
  if (remarks.length) return note(remarks.join(" "));
  return say(`Candidate ${number + 1} taken. Control Z takes it back.`);
}

function render(doc, ui) {
  const { batch } = ui;
  const filling = batch?.filling ?? null;
  // Cards do not change under the pointer: better ones wait until it has left.
  const held = looking !== null && shown !== null && shown.of === batch && filling !== null && differ(filling, shown);
  if (!held) shown = filling ? { candidates: filling.candidates, of: batch } : null;
  keep($("better"), { hidden: !held });
  keep($("stale"), { hidden: !batch || !filling || isCurrent(batch, doc) });
  keep($("result"), { hidden: !filling || Boolean(batch.only) });
  // Where no gap is left there is nothing to write otherwise.
  keep($("different"), { hidden: !batch || !standing(batch, doc).some(({ id }) => isWritten(lineOf(doc, id))) });
  keep($("extent"), { hidden: !batch?.extent, textContent: batch?.extent ?? "" });
  notes(filling?.notes ?? []);
  const below = batch?.only?.findLast((id) => lineOf(doc, id)) ?? null;
  const home = below ? inPlace : $("cards-home");
  // Moving a list that has the focus would take the focus away in the middle of the move.
  if (list.parentElement !== home && list.contains(document.activeElement)) document.activeElement.blur();
  if (list.parentElement !== home) home.prepend(list);
  inPlace.dataset.state = batch?.state ?? "none";
  if (hang("cards", below, inPlace)) inPlace.scrollIntoView({ block: "nearest" });
  draw(doc, batch);
}

const differ = (a, b) => JSON.stringify(a.candidates) !== JSON.stringify(b.candidates);

function notes(list) {
  const told = list.join("\n");
  const element = $("notes");
  if (element.dataset.of === told) return;
  element.dataset.of = told;
  element.replaceChildren(...list.map((text) => h("p", {}, text.charAt(0).toUpperCase() + text.slice(1) + ".")));
}

let drawn = "";

function draw(doc, batch) {
  const lines = batch ? standing(batch, doc) : [];
  const key = JSON.stringify([shown?.candidates, batch?.writing, batch?.state, lines.map(({ id }) => lineOf(doc, id).text)]);
  if (key === drawn) return;
  drawn = key;
  const had = list.contains(document.activeElement) ? [looking, document.activeElement.dataset.does] : null;
  const first = !list.querySelector(".card[data-number]");
  list.replaceChildren(...(shown?.candidates.map((candidate, number) => card(candidate, number, lines, doc, batch)) ?? (batch?.state === "running" ? [writing(batch)] : [])));
  if (had) list.children[had[0]]?.querySelector(`[data-does="${had[1]}"]`)?.focus();
  // On a telephone the candidates are below the text: the first of them is brought into view.
  if (first && shown && !BESIDE.matches && !batch.only) list.firstElementChild.scrollIntoView({ block: "start" });
}

/** What is being written now, word by word. */
function writing({ writing: lines, writes }) {
  const text = writes.map((at) => lines?.[at + 1]).filter(Boolean);
  return h("li", { class: "card pending", "aria-hidden": "true" }, h("p", { class: "words" }, text.length ? `${text.join(" ")} …` : "…"));
}

function card(candidate, number, lines, doc, batch) {
  const all = lines.map(({ at }) => at);
  const same = lines.length > 0 && lines.every(({ at, id }) => lineOf(doc, id).text === candidate.sentences[at].text);
  const takeAll = h(
    "button",
    { type: "button", class: "take", "data-does": "all", "aria-label": `Take candidate ${number + 1}`, onclick: () => taken(number, batch.writes), "aria-disabled": all.length ? null : "true" },
    same ? [icon("take"), "Taken"] : "Take",
  );
  return h(
    "li",
    {
      class: "card",
      "data-number": number,
      "data-taken": same ? "yes" : "no",
      onclick: (event) => {
        // The whole card is a target for a mouse; its buttons are for everyone. Selecting words takes nothing.
        if (!event.target.closest("button, details") && all.length && getSelection().isCollapsed) taken(number, batch.writes);
      },
    },
    h("ol", { class: "sentences" }, batch.writes.map((at) => sentence(candidate, at, number, doc, batch))),
    h(
      "div",
      { class: "card-foot" },
      takeAll,
      details(candidate),
      menu(pictured("more", `More for candidate ${number + 1}`, { "data-does": "more" }), () => [
        { label: "More like this", act: () => moreLike(candidate, batch) },
        ...actions(entryOf(candidate, batch)),
      ]),
    ),
  );
}

/** Figures, for those who want them. */
function details(candidate) {
  const score = `Score ${candidate.score.toFixed(1).replace("-", "−")}: larger is better among these.`;
  return h("details", { class: "figures" }, h("summary", {}, "Details"), verdicts(candidate), h("p", { class: "small" }, score));
}

function sentence(candidate, at, number, doc, batch) {
  const answer = candidate.sentences[at];
  const line = lineOf(doc, batch.ids[at]);
  const before = line?.text.trim();
  const other = before && before !== answer.text ? before : number && !before ? shown.candidates[0].sentences[at].text : null;
  const place = line ? numberOf(doc, line.id) : at + 1;
  const weak = isWeak(candidate, at);
  return h(
    "li",
    {},
    mood(answer),
    h("span", { class: "words", "data-tag": answer.tag }, marked(answer.text, other)),
    answer.met === false ? h("span", { class: "missed" }, `asked for ${missed(answer)}`) : null,
    weak ? h("span", { class: "weakest" }, "weak") : null,
    batch.writes.length > 1 && line
      ? h("button", { type: "button", class: "pictured one", "data-does": `line ${at}`, title: `Take only sentence ${place}`, "aria-label": `Take only sentence ${place} of candidate ${number + 1}`, onclick: () => taken(number, [at]) }, icon("take"))
      : null,
  );
}

/** What the arc asked for, in the words of the page. */
const missed = ({ asked, asked_factors }) => [asked, ...Object.values(asked_factors ?? {})].filter(Boolean).map(said).join(", ");

/** A mood as a place on a small axis, as on the arc. */
function mood({ tag }) {
  const { labels } = store.ui;
  if (!labels.includes(tag)) return null;
  const dot = h("span", { class: "dot" });
  dot.style.left = `${place(tag, labels) * 100}%`;
  return h("span", { class: "mood", "data-hue": hue(tag, labels), title: said(tag) }, dot, h("span", { class: "heard" }, `${said(tag)}: `));
}

function marked(text, other) {
  if (!other) return text;
  const parts = compare(text, other);
  if (parts.filter((part) => part.fresh).length > MOSTLY * parts.length) return text;
  return parts.flatMap(({ text: word, fresh }, at) => [at ? " " : "", fresh ? h("mark", {}, word) : word]);
}

/** The button that asks for candidates, and what it says meanwhile. */
export function controls({ fill, stop }) {
  $("fill").addEventListener("click", () => (store.ui.batch?.state === "running" ? stop() : fill()));
  $("different").addEventListener("click", () => shown && different(shown.candidates, store.ui.batch));
  $("link").addEventListener("click", () => store.ui.batch && act.copyLink(store.ui.batch.request));
  subscribe((doc, { batch }) => {
    const busy = batch?.state === "running";
    $("suggest").dataset.state = batch?.state ?? "none";
    keep($("fill"), { textContent: busy ? "Stop" : "Fill in" });
    $("fill").classList.toggle("busy", busy);
    keep($("progress"), { hidden: !busy });
    const { drawn: done = 0, samples = 1 } = batch?.progress ?? {};
    const bar = $("bar-fill");
    bar.style.width = busy && batch.progress?.drawn ? `${Math.max(4, (100 * done) / samples)}%` : "";
    bar.classList.toggle("unknown", busy && !batch.progress?.drawn);
    const told = !busy ? "" : batch.waiting ? `The studio is busy; trying again in ${batch.waiting} s` : batch.ahead ? `Waiting: ${batch.ahead} ${batch.ahead === 1 ? "other is" : "others are"} before you` : batch.progress?.drawn ? "Writing and choosing…" : "Reading your lines…";
    keep($("progress-text"), { textContent: told });
    keep($("hint"), { hidden: Boolean(batch) || doc.lines.every((line) => line.text.trim()) });
  });
}
