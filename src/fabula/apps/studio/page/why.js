// Why this sentence: how probable the model found every word, and how the sentence fits what surrounds it.

import * as api from "./api.js";
import { h, pictured } from "./dom.js";
import { focus, hang } from "./editor.js";
import { usable, windowOf } from "./filling.js";
import { partOf } from "./lanes.js";
import { said as moodSaid } from "./moods.js";
import { sendable } from "./people.js";
import { isGap, lineOf } from "./state.js";
import { show, store, subscribe } from "./store.js";
import { otherWords } from "./verbs.js";

let control = null;
const panel = h("div", { class: "why", contentEditable: "false", onkeydown: (event) => event.key === "Escape" && (event.stopPropagation(), close()) });

export function start() {
  subscribe((doc, ui) => {
    // An explanation is of the words that were explained.
    if (ui.why && ui.why.of !== key(doc)) ui.why = null;
    draw(ui.why);
  });
}

const key = (doc) => JSON.stringify(doc.lines.map((line) => [line.text, line.tag]));

function close() {
  const { id } = store.ui.why;
  show({ why: null });
  focus(id);
}

export async function toggle(id) {
  control?.abort();
  if (store.ui.why?.id === id) return show({ why: null });
  const { doc } = store;
  const place = doc.lines.findIndex((line) => line.id === id);
  const [from, to] = windowOf(doc, [place]);
  const read = doc.lines.slice(from, to).filter((line) => !isGap(line));
  const why = { id, of: key(doc), state: "loading", left: to - from - read.length };
  show({ why });
  control = new AbortController();
  try {
    if (read.length < 2) throw new api.Failure("There is nothing around this sentence yet to compare it with.");
    const body = { sentences: read.map(({ text }) => sendable(text)), arc: read.map(({ tag }) => tag), seed: 0, model: usable(doc.model) };
    const { sentences } = await api.explain(body, control.signal);
    const at = read.findIndex((line) => line.id === id);
    // A model that gives no probability of a mood still has a tagger, which reads it.
    if (doc.lines[place].tag !== null && !finite(sentences[at].fits_arc)) why.mood = (await api.tag({ sentences: [body.sentences[at]], model: body.model }, control.signal)).tags[0];
    Object.assign(why, { state: "ready", answer: sentences[at], tag: doc.lines[place].tag, first: at === 0, last: at === read.length - 1 });
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    Object.assign(why, { state: "failed", message: error.message });
  }
  return store.ui.why === why ? show({}) : undefined;
}

function draw(why) {
  const stamp = why ? `${why.id} ${why.of} ${why.state}` : "";
  if (panel.dataset.of === stamp) return;
  panel.dataset.of = stamp;
  panel.replaceChildren(...(why ? [pictured("close", "Close the explanation", { onclick: close }), ...content(why)] : []));
  hang("why", why?.id ?? null, panel);
}

function content(why) {
  if (why.state === "loading") return [h("p", { role: "status" }, "Reading the story…")];
  if (why.state === "failed") return [h("p", { role: "status" }, why.message)];
  const { words, fits_before, fits_after, fits_arc } = why.answer;
  return [
    h("p", { class: "verdict" }, verdict(why)),
    h("p", { class: "tinted" }, words.map((word, at) => tinted(word, () => choose(why, at)))),
    h("p", { class: "small" }, "Click a word to see what else could stand there."),
    h("p", { class: "heard" }, surprise(words)),
    h("p", { class: "scale", "aria-hidden": "true" }, h("span", {}, "expected"), h("span", { class: "ramp" }), h("span", {}, "surprising")),
    h(
      "dl",
      {},
      part("Fits before", fits_before, -5, 0, beforeSaid(fits_before, why.first)),
      part("Fits after", fits_after, -5, 5, why.last ? "nothing follows it" : afterSaid(fits_after)),
      part("Fits the arc", fits_arc, -3, 0, arcSaid(fits_arc, why)),
    ),
    why.left ? h("p", { class: "small" }, `${why.left === 1 ? "One gap was" : `${why.left} gaps were`} left out.`) : null,
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

function tinted({ text, space, log_p, unknown }, act) {
  const strength = finite(log_p) ? Math.min(1, Math.max(0, -log_p / 8)) : 0;
  const said = unknown ? "a word that the model does not know" : finite(log_p) ? odds(log_p) : "";
  const word = h("button", { type: "button", class: "word", title: said, "aria-label": `${text}, ${said}`, onclick: act }, text);
  word.style.setProperty("--tint", `${Math.round(strength * 70)}%`);
  return [word, space];
}

/** Other words for the one that was clicked. */
function choose({ id, answer: { words } }, at) {
  const { text } = lineOf(store.doc, id);
  const from = words.slice(0, at).reduce((place, word) => text.indexOf(word.text, place) + word.text.length, 0);
  const start = text.indexOf(words[at].text, from);
  show({ why: null });
  return otherWords(id, start, start + words[at].text.length);
}

/** What an editor would say of a sentence. The bounds, nats a word and nats, are rules of thumb: nobody measured them. */
function verdict({ answer: { fits_before, fits_after, fits_arc }, first, last, tag }) {
  const said = [];
  if (!first && finite(fits_before))
    said.push(fits_before > -2.5 ? "follows from what came before" : fits_before > -4.5 ? "could follow from what came before" : "comes as a surprise after what came before");
  if (!last && finite(fits_after))
    said.push(fits_after > 0.5 ? "leads to what follows" : fits_after < -0.5 ? "does not lead to what follows" : "neither helps nor hinders what follows");
  const mood = partOf(tag, 0, store.ui.factors?.length ?? 1);
  if (mood !== null && finite(fits_arc)) said.push(Math.exp(fits_arc) > 0.5 ? `is ${moodSaid(mood)}, as you asked` : `is not as ${moodSaid(mood)} as you asked`);
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
  const gauge = h("span", { class: "gauge", "aria-hidden": "true" }, fill);
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

function arcSaid(value, { tag, mood }) {
  const asked = partOf(tag, 0, store.ui.factors?.length ?? 1);
  if (asked === null) return "this point of the arc is free";
  if (finite(value)) return `${Math.round(100 * Math.exp(value))} % sure that it is ${moodSaid(asked)}`;
  return mood === asked ? `it is ${moodSaid(asked)}, as you asked` : `it is ${moodSaid(mood)}, not ${moodSaid(asked)}`;
}
