// Why this sentence: how probable the model found every word, and how the sentence fits what surrounds it.

import * as api from "./api.js";
import { h } from "./dom.js";
import { usable } from "./filling.js";
import { panels } from "./lines.js";
import { said as moodSaid } from "./moods.js";
import { show, store, subscribe } from "./store.js";
import { alternatives, before, panel as others } from "./words.js";

let control = null;

export function start() {
  subscribe((doc, ui) => {
    // An explanation is of the words that were explained.
    if (ui.why && ui.why.of !== key(doc)) ui.why = null;
    panels().forEach((panel, i) => draw(panel, ui.why?.line === i ? ui.why : null));
  });
}

const key = (doc) => JSON.stringify(doc.lines.map((line) => [line.text, line.tag]));

export async function toggle(i) {
  control?.abort();
  if (store.ui.why?.line === i) return show({ why: null });
  const { doc } = store;
  const told = doc.lines.flatMap((line, at) => (line.text.trim() ? [at] : []));
  const why = { line: i, of: key(doc), state: "loading", left: doc.lines.length - told.length };
  show({ why });
  control = new AbortController();
  try {
    if (told.length < 2) throw new api.Failure("There is nothing around this sentence yet to compare it with.");
    const body = {
      sentences: told.map((at) => doc.lines[at].text.trim()),
      arc: told.map((at) => doc.lines[at].tag),
      seed: 0,
      model: usable(doc.model),
    };
    const { sentences } = await api.explain(body, control.signal);
    const answer = sentences[told.indexOf(i)];
    Object.assign(why, { state: "ready", answer, tag: doc.lines[i].tag, first: told[0] === i, last: told.at(-1) === i });
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    Object.assign(why, { state: "failed", message: error.message });
  }
  return store.ui.why === why ? show({}) : undefined;
}

function draw(panel, why) {
  const stamp = why ? `${why.of} ${why.state} ${why.chosen?.at} ${why.chosen?.state}` : "";
  if (panel.dataset.of === stamp) return;
  panel.dataset.of = stamp;
  panel.hidden = !why;
  panel.replaceChildren(...(why ? content(why) : []));
}

function content(why) {
  if (why.state === "loading") return [h("p", { role: "status" }, "Reading the story…")];
  if (why.state === "failed") return [h("p", { role: "status" }, why.message)];
  const { words, fits_before, fits_after, fits_arc } = why.answer;
  return [
    h("p", { class: "verdict" }, verdict(why)),
    h("p", { class: "tinted" }, words.map((word, at) => tinted(word, () => choose(why, at), why.chosen?.at === at))),
    h("p", { class: "small" }, "Click a word to see what else could stand there."),
    why.chosen ? others(why.line, why.chosen, odds) : null,
    h("p", { class: "heard" }, surprise(words)),
    h("p", { class: "scale", "aria-hidden": "true" }, h("span", {}, "expected"), h("span", { class: "ramp" }), h("span", {}, "surprising")),
    h(
      "dl",
      {},
      part("Fits before", fits_before, -5, 0, beforeSaid(fits_before, why.first)),
      part("Fits after", fits_after, -5, 5, why.last ? "nothing follows it" : afterSaid(fits_after)),
      part("Fits the arc", fits_arc, -3, 0, arcSaid(fits_arc, why.tag)),
    ),
    why.left ? h("p", { class: "small" }, `${why.left === 1 ? "One blank line was" : `${why.left} blank lines were`} left out.`) : null,
  ].filter(Boolean);
}

const finite = (value) => typeof value === "number" && Number.isFinite(value);

/** One chance in how many, in round numbers. */
function odds(log_p) {
  const n = Math.exp(-log_p);
  if (n < 1.15) return "almost sure";
  if (n < 9.5) return `1 in ${n < 2 ? n.toFixed(1) : Math.round(n * 2) / 2}`;
  const digits = 10 ** Math.floor(Math.log10(n) - (n > 100 ? 0 : 1));
  return `1 in ${(Math.round(n / digits) * digits).toLocaleString("en")}`;
}

function tinted({ text, space, log_p, unknown }, act, chosen) {
  const strength = finite(log_p) ? Math.min(1, Math.max(0, -log_p / 8)) : 0;
  const said = unknown ? "a word that the model does not know" : finite(log_p) ? odds(log_p) : "";
  const word = h("button", { type: "button", class: "word", title: said, "aria-label": `${text}, ${said}`, "aria-pressed": String(chosen), onclick: act }, text);
  word.style.setProperty("--tint", `${Math.round(strength * 70)}%`);
  return [word, space];
}

/** Other words for the one that was clicked; clicked again, it is closed. */
async function choose(why, at) {
  control?.abort();
  if (why.chosen?.at === at) {
    why.chosen = null;
    return show({});
  }
  const { words } = why.answer;
  const chosen = { at, start: before(words, at), word: words[at].text, state: "loading", found: [] };
  why.chosen = chosen;
  show({});
  control = new AbortController();
  try {
    chosen.found = await alternatives(why.line, chosen.start, chosen.word, control.signal);
    chosen.state = "ready";
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    Object.assign(chosen, { state: "failed", message: error.message });
  }
  return store.ui.why === why ? show({}) : undefined;
}

/** What an editor would say of a sentence. The bounds, nats a word and nats, are rules of thumb: nobody measured them. */
function verdict({ answer: { fits_before, fits_after, fits_arc }, first, last, tag }) {
  const said = [];
  if (!first && finite(fits_before))
    said.push(fits_before > -2.5 ? "follows from what came before" : fits_before > -4.5 ? "could follow from what came before" : "comes as a surprise after what came before");
  if (!last && finite(fits_after))
    said.push(fits_after > 0.5 ? "leads to what follows" : fits_after < -0.5 ? "does not lead to what follows" : "neither helps nor hinders what follows");
  if (tag !== null && finite(fits_arc)) said.push(Math.exp(fits_arc) > 0.5 ? `is ${moodSaid(tag)}, as you asked` : `is not as ${moodSaid(tag)} as you asked`);
  return said.length ? `This sentence ${said.join(", and it ").replace(/, and it (?=.*, and it )/g, ", ")}.` : "There is nothing around it to compare it with.";
}

function surprise(words) {
  const ranked = words.filter(({ log_p }) => finite(log_p)).sort((a, b) => a.log_p - b.log_p).slice(0, 3);
  return `Most surprising words: ${ranked.map(({ text, log_p }) => `${text}, ${odds(log_p)}`).join("; ")}.`;
}

function part(name, value, least, most, words) {
  const share = finite(value) ? Math.min(1, Math.max(0, (value - least) / (most - least))) : 0;
  const fill = h("span", { class: "gauge-fill" });
  fill.style.width = `${Math.round(share * 100)}%`;
  const gauge = h("span", { class: "gauge", "aria-hidden": "true", title: finite(value) ? `${value.toFixed(2)} nats` : "" }, fill);
  return [
    h("dt", {}, name),
    h("dd", {}, finite(value) ? gauge : null, h("span", {}, words)),
  ];
}

function beforeSaid(value, first) {
  if (!finite(value)) return "not known";
  return `its words are ${odds(value)} on average, given ${first ? "nothing before" : "what came before"}`;
}

function afterSaid(value) {
  if (!finite(value)) return "not known";
  if (Math.abs(value) < 0.1) return "makes no difference to what follows";
  const times = Math.exp(Math.abs(value));
  if (times > 1000) return `it makes what follows far ${value > 0 ? "more" : "less"} likely`;
  const told = times < 10 ? (Math.round(times * 10) / 10).toString() : Math.round(times).toLocaleString("en");
  return `it makes what follows ${told} times ${value > 0 ? "more" : "less"} likely`;
}

function arcSaid(value, tag) {
  if (tag === null) return "this point of the arc is free";
  if (!finite(value)) return "not known";
  return `${Math.round(100 * Math.exp(value))} % sure that it is ${moodSaid(tag)}`;
}
