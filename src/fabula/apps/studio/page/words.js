// A word clicked in an explanation: what else could stand there and how probable each is, and writing on from there.
//
// Alternatives come from candidates for the line that share the words before; each is weighed as any sentence is.

import * as api from "./api.js";
import { h } from "./dom.js";
import { places, regenerate, request } from "./filling.js";
import { store } from "./store.js";

const OFFERED = 6;

/** The words before word k, as the line has them. */
export const before = (words, k) => words.slice(0, k).map(({ text, space }) => text + (space ?? "")).join("").trim();

const bare = (word) => word?.replace(/[^\p{L}\p{N}'’-]/gu, "") ?? "";

/** The word that follows `start` in a sentence. */
function next(sentence, start) {
  const rest = start && sentence.startsWith(start) ? sentence.slice(start.length) : start ? "" : sentence;
  return bare(rest.trim().split(/\s+/)[0]);
}

/** [{word, log_p}] for the place after `start` in line i, the most probable first. */
export async function alternatives(i, start, standing, signal) {
  const { doc } = store;
  const asked = { ...request({ ...doc, lines: doc.lines.map((line, at) => (at === i ? { ...line, start } : line)) }, i), candidates: 10 };
  const filling = await api.fill(asked, { signal, onWaiting() {}, onProgress() {}, onCandidates() {} });
  const own = places(doc, i).indexOf(i);
  const found = new Map();
  for (const candidate of filling.candidates) {
    const word = next(candidate.sentences[own].text, start);
    if (word && word.toLowerCase() !== standing.toLowerCase() && !found.has(word.toLowerCase())) found.set(word.toLowerCase(), [word, candidate]);
  }
  const weighed = [];
  for (const [word, candidate] of [...found.values()].slice(0, OFFERED)) {
    const body = { sentences: candidate.sentences.map(({ text }) => text), arc: asked.arc, seed: 0, model: asked.model };
    const { sentences } = await api.explain(body, signal);
    const place = start ? bareCount(start) : 0;
    const told = sentences[own].words.filter(({ text }) => bare(text))[place];
    weighed.push({ word, log_p: told?.log_p ?? null });
  }
  return weighed.sort((a, b) => (b.log_p ?? -99) - (a.log_p ?? -99));
}

const bareCount = (text) => text.split(/\s+/).filter((word) => bare(word)).length;

/** What is shown below the words of an explanation once one was clicked. */
export function panel(i, chosen, odds) {
  const { start, word, state, found, message } = chosen;
  const from = start ? `after “${start}”` : "at the beginning";
  const list =
    state === "loading" ? h("p", { role: "status" }, "Looking for other words…")
    : state === "failed" ? h("p", { role: "status" }, message)
    : found.length
      ? h("ul", { class: "alternatives" }, found.map((one) =>
          h("li", {}, h("button", { type: "button", onclick: () => regenerate(i, `${start} ${one.word}`.trim()) }, one.word, h("span", { class: "hint" }, one.log_p === null ? "" : ` ${odds(one.log_p)}`)))))
      : h("p", { role: "status" }, "The model found no other word here.");
  return h(
    "div",
    { class: "others" },
    h("p", { class: "small" }, `Instead of “${word}”, ${from}:`),
    list,
    h("button", { type: "button", class: "quiet", onclick: () => regenerate(i, start) }, start ? "Regenerate from here" : "Regenerate the line"),
  );
}
