// Candidates as cards beside the story. Looking at one (pointer or focus) shows it in place; a click takes it, and only a click.

import { compare } from "./diff.js";
import { $, h, icon, keep, pictured } from "./dom.js";
import { verdicts, weakest } from "./critic.js";
import { different, moreLike, recipe } from "./filling.js";
import { inView } from "./lanes.js";
import { menu } from "./menu.js";
import { hue, place, said } from "./moods.js";
import { note, say } from "./messages.js";
import { named, noted } from "./people.js";
import { take } from "./state.js";
import { change, show, store, subscribe } from "./store.js";
import { actions, entryOf } from "./tray.js";

/** More new words than this, and marking them would say nothing. */
const MOSTLY = 0.7;

/** Only beside the story: in one column a preview above would push the card away from the pointer. */
const BESIDE = matchMedia("(min-width: 60.01rem)");

let shown = null;
let looking = null;
let act = {};

/** `actions`: copyLink(request). */
export function start(actions) {
  act = actions;
  const list = $("cards");
  // Only a pointer that moves looks: cards that appear under a resting one are not meant.
  list.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" && (event.movementX || event.movementY)) look(event.target);
  });
  list.addEventListener("pointerleave", () => leave());
  list.addEventListener("focusin", (event) => look(event.target));
  list.addEventListener("focusout", (event) => list.contains(event.relatedTarget) || leave());
  subscribe(render);
}

/** The lines of a batch that are its own to write. */
export const written = ({ request, only, places }) => places.filter((i, at) => request.sentences[at] === null && (only ?? i) === i);

/** Whether the story still has the shape that the candidates were written for. */
const fits = (batch, doc) => batch.before.length === doc.lines.length;

/** Whether line i was written by hand since the candidates were asked for: it is not theirs to replace. */
const own = (batch, doc, i) => {
  const { text, write } = doc.lines[i];
  return Boolean(text.trim()) && !write && text !== batch.before[i];
};

/** Whether what was given, and the arc, are still what stands there. */
const current = (batch, doc) => {
  const { sentences, arc, people, notes } = batch.request;
  const said = noted(doc);
  // What follows the writer's notes is an example that more are to be like.
  if (JSON.stringify([people ?? [], (notes ?? []).slice(0, said.length)]) !== JSON.stringify([named(doc), said])) return false;
  const kept = (i, at) => (sentences[at] === null ? !own(batch, doc, i) : sentences[at] === doc.lines[i].text.trim());
  return fits(batch, doc) && batch.places.every(kept) && batch.places.every((i, at) => (arc?.[at] ?? null) === doc.lines[i].tag);
};

function look(target) {
  const card = target.closest(".card");
  if (!card) return;
  const number = Number(card.dataset.number);
  if (looking === number) return;
  looking = number;
  const { batch } = store.ui;
  const candidate = shown?.candidates[number];
  if (!candidate || !fits(batch, store.doc) || !BESIDE.matches) return;
  const sentences = Object.fromEntries(
    written(batch).filter((i) => !store.doc.lines[i].locked && !own(batch, store.doc, i)).map((i) => [i, candidate.sentences[i].text]),
  );
  show({ preview: { sentences, told: candidate.sentences } });
}

function leave() {
  looking = null;
  if (store.ui.preview) show({ preview: null });
  else render(store.doc, store.ui);
}

function taken(number, wanted) {
  const { batch } = store.ui;
  const candidate = shown.candidates[number];
  const spared = wanted.length > 1 ? wanted.filter((i) => own(batch, store.doc, i)) : [];
  const lines = wanted.filter((i) => !spared.includes(i));
  if (!lines.length) return note("You have written all these lines yourself since: take one of them alone to replace it.");
  const sentences = Object.fromEntries(lines.map((i) => [i, candidate.sentences[i].text]));
  const entry = { ...recipe(batch.request), candidate: number, lines: lines.map((i) => i + 1), score: candidate.score };
  store.ui.preview = null;
  change(take, sentences, entry);
  if (spared.length) return note(`${spared.length === 1 ? "Line" : "Lines"} ${spared.map((i) => i + 1).join(", ")} ${spared.length === 1 ? "stays" : "stay"} as you wrote ${spared.length === 1 ? "it" : "them"} since.`);
  return say(`${lines.length === 1 ? `Line ${lines[0] + 1} of candidate` : "Candidate"} ${number + 1} taken. Control Z takes it back.`);
}

function render(doc, ui) {
  const { batch } = ui;
  const filling = batch?.filling ?? null;
  // Cards do not change under the pointer: better ones wait until it has left.
  const held = looking !== null && shown !== null && shown.of === batch && filling !== null && differ(filling, shown);
  if (!held) shown = filling ? { candidates: filling.candidates, of: batch } : null;
  keep($("better"), { hidden: !held });
  keep($("stale"), { hidden: !batch || !filling || current(batch, doc) });
  keep($("result"), { hidden: !filling });
  notes(filling?.notes ?? []);
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
  const list = $("cards");
  const lines = batch ? written(batch) : [];
  const ready = shown && batch && fits(batch, doc);
  const key = shown ? JSON.stringify([shown.candidates, lines, ready, store.ui.lane, lines.map((i) => doc.lines[i]?.text)]) : "";
  if (key === drawn) return;
  drawn = key;
  const had = list.contains(document.activeElement) ? [looking, document.activeElement.dataset.does] : null;
  list.replaceChildren(...(shown?.candidates ?? []).map((candidate, number) => card(candidate, number, lines, doc, ready)));
  if (had) list.children[had[0]]?.querySelector(`[data-does="${had[1]}"]`)?.focus();
}

function card(candidate, number, lines, doc, ready) {
  const best = shown.candidates[0];
  const behind = best.score - candidate.score;
  const same = ready && lines.every((i) => doc.lines[i].text === candidate.sentences[i].text);
  const takeAll = h(
    "button",
    {
      type: "button",
      class: "take",
      "data-does": "all",
      "aria-label": `Take candidate ${number + 1}`,
      onclick: () => ready && taken(number, lines),
      "aria-disabled": ready ? null : "true",
    },
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
        if (!event.target.closest("button") && ready && getSelection().isCollapsed) taken(number, lines);
      },
    },
    h(
      "div",
      { class: "card-head" },
      h("span", { class: "rank" }, `${number + 1}`),
      h("span", { class: "score", title: "How probable the model finds the way to what you gave, in nats; larger is better" },
        `score ${candidate.score.toFixed(1).replace("-", "−")}`, number ? `, ${behind.toFixed(1)} behind` : ""),
      menu(pictured("more", `More for candidate ${number + 1}`, { "data-does": "more" }), () => [
        { label: "More like this", act: () => moreLike(candidate, lines, store.ui.batch.only) },
        ...actions(entryOf(candidate, lines, store.ui.batch.request)),
      ]),
      takeAll,
    ),
    verdicts(candidate),
    h("ol", { class: "sentences" }, lines.map((i) => sentence(candidate.sentences[i], i, number, lines, doc, ready, weakest(candidate) === i))),
  );
}

function sentence(told, i, number, lines, doc, ready, weak) {
  const { text, tag, log_p } = told;
  const before = ready && doc.lines[i].text.trim();
  const other = before && before !== text ? before : number && !before ? shown.candidates[0].sentences[i].text : null;
  return h(
    "li",
    { title: log_p === null ? null : `${log_p.toFixed(1)} nats`, "data-weakest": weak ? "yes" : null },
    h("span", { class: "number", "aria-hidden": "true" }, String(i + 1)),
    mood(told),
    h("span", { class: "words", "data-tag": tag }, marked(text, other)),
    told.met === false ? h("span", { class: "missed" }, `asked for ${missed(told)}`) : null,
    weak ? h("span", { class: "weakest" }, "weakest line") : null,
    lines.length > 1
      ? h("button", { type: "button", class: "pictured one", "data-does": `line ${i}`, title: `Take only line ${i + 1}`, "aria-label": `Take only line ${i + 1} of candidate ${number + 1}`, onclick: () => ready && taken(number, [i]) }, icon("take"))
      : null,
  );
}

/** What the arc asked for, in the words of the page. */
const missed = ({ asked, asked_factors }) => [asked, ...Object.values(asked_factors ?? {})].filter(Boolean).map(said).join(", ");

/** A mood as a place on a small axis, as on the arc; what another lane says has no order, and is its word. */
function mood(told) {
  const { labels, has, first } = inView(store.doc, store.ui);
  const tag = has(told);
  if (tag === null) return null;
  if (!first) return h("span", { class: "label" }, said(tag));
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
  $("different").addEventListener("click", () => shown && different(shown.candidates, written(store.ui.batch), store.ui.batch.only));
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
    const told = !busy ? "" : batch.waiting ? `The studio is busy; trying again in ${batch.waiting} s` : batch.ahead ? `Waiting: ${batch.ahead} ${batch.ahead === 1 ? "other is" : "others are"} before you` : batch.progress?.drawn ? `${done} of ${samples} samples drawn` : "Reading your lines…";
    keep($("progress-text"), { textContent: told });
    keep($("hint"), { hidden: Boolean(batch) || doc.lines.every((line) => line.text.trim()) });
  });
}
