// Asking for candidates: what is sent, the stream that comes back, stopping, and trying again when the server is busy.

import * as api from "./api.js";
import { named, noted } from "./people.js";
import * as likeness from "./likeness.js";
import { clear, said, say, warn } from "./messages.js";
import { FEWEST, isWritten, set } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

/**
 * Open lines after the last given one that are asked for at once. With the shipped model the best of ten samples stays
 * as probable as a short story up to 20 lines, is 20 nats worse at 24, and falls apart from 30 on.
 */
export const AHEAD = 20;
const SEEDS = 2 ** 31;

let running = null;

/** A story may name a model that is not installed here: the studio's own writes it then. */
export const usable = (model) => (store.ui.models.some((one) => one.name === model) ? model : null);

/**
 * The lines that the sampler is told of. With `only` these are the one to be written and those that have words: a blank
 * one is left out, because writing it unseen would take as long as all. A story has two lines, if need be a blank one.
 */
export function places(doc, only = null) {
  const all = doc.lines.map((_, i) => i);
  if (only === null) return all.slice(0, within(doc));
  const told = all.filter((i) => i === only || doc.lines[i].text.trim());
  return told.length < FEWEST ? (only ? [only - 1, only] : [only, only + 1]) : told;
}

/** What the sampler is told: the story as it stands. With `only`, line `only` is written and no other. */
export function request(doc, only = null) {
  const lines = places(doc, only).map((i) => ({ ...doc.lines[i], written: only === null ? isWritten(doc.lines[i]) : i === only || !doc.lines[i].text.trim() }));
  const starts = Object.fromEntries(
    lines.flatMap(({ written, start }, i) => (written && start.trim() ? [[String(i + 1), start.trim()]] : [])),
  );
  return {
    sentences: lines.map(({ written, text }) => (written ? null : text.trim())),
    arc: lines.some((line) => line.tag !== null) ? lines.map((line) => line.tag) : null,
    candidates: doc.candidates,
    samples: null, // the model's own number
    sampler: "smc",
    seed: doc.seed,
    starts: Object.keys(starts).length ? starts : null,
    people: named(doc),
    notes: noted(doc),
    model: usable(doc.model),
    temperature: doc.temperature,
    top_k: null,
  };
}

/** How many lines are sent: none that lies too far behind the last given one. */
export function within(doc) {
  const last = doc.lines.findLastIndex((line) => !isWritten(line));
  return Math.min(doc.lines.length, Math.max(last, 0) + 1 + AHEAD);
}

/** An answer with a sentence for every line of the story; one that the sampler was not told of has no figures. */
function spread(filling, told, lines) {
  const all = ({ sentences }) => lines.map(({ text }, i) => sentences[told.indexOf(i)] ?? { text, tag: null, log_p: null });
  const parts = (known) => known && { ...known, weakest: known.weakest ? told[known.weakest - 1] + 1 : known.weakest };
  return { ...filling, candidates: filling.candidates.map((one) => ({ ...one, parts: parts(one.parts), sentences: all(one) })) };
}

/** What a link carries of a request. */
export function recipe({ sentences, arc, starts, people, notes, seed, model, candidates, samples, sampler, temperature, top_k }) {
  return { model: model ?? store.ui.model, seed, settings: { candidates, samples, sampler, temperature, top_k }, sentences, arc, starts, people, notes };
}

/** Who is told of a finished call. */
let arrived = () => {};
export const onArrival = (listener) => (arrived = listener);

export const stop = () => running?.abort();

/** Candidates for the blank and marked lines; asked again for the very same, with another seed. */
export function fill() {
  const { batch } = store.ui;
  const same = batch && batch.only === null && batch.state !== "failed" && equal(batch.request, request(store.doc));
  if (same) change(set, { seed: (store.doc.seed + 1) % SEEDS });
  return run(request(store.doc), null);
}

/** Candidates for one line; the others are kept. */
export function regenerate(i, start = store.doc.lines[i].start) {
  if (store.doc.lines[i].locked) return warn("fill", `Line ${i + 1} is locked; unlock it to have it written anew.`);
  const { batch } = store.ui;
  const body = () => request({ ...store.doc, lines: store.doc.lines.map((line, at) => (at === i ? { ...line, start } : line)) }, i);
  if (batch && equal(batch.request, body())) change(set, { seed: (store.doc.seed + 1) % SEEDS });
  return run(body(), i);
}

/** Exactly this, as a link says it. */
export const repeat = (body) => run(body, null);

/** Others like a candidate: it is read beside the notes, and of many new ones those nearest to it are shown. */
export function moreLike(candidate, lines, only) {
  const text = likeness.textOf(candidate, lines);
  return others(only, [likeness.example(candidate, lines)], (found, count) => likeness.nearest(found, lines, text, count));
}

/** Others that are as different as can be from those that are shown. */
export function different(candidates, lines, only) {
  const texts = candidates.map((one) => likeness.textOf(one, lines));
  return others(only, [], (found, count) => likeness.farthest(found, lines, texts, count));
}

function others(only, notes, choose) {
  change(set, { seed: (store.doc.seed + 1) % SEEDS });
  const body = request(store.doc, only);
  return run({ ...body, candidates: likeness.ASKED, notes: [...body.notes, ...notes] }, only, (filling) => {
    const chosen = choose(filling.candidates, store.doc.candidates);
    return { ...filling, candidates: chosen.length ? chosen : filling.candidates.slice(0, store.doc.candidates) };
  });
}

const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

async function run(body, only, choose = (filling) => filling) {
  clear("fill");
  if (body.sentences.every((sentence) => sentence !== null)) {
    warn("fill", "Every line has words already. Clear a line, or mark one with “Write this”, and Fabula writes it.");
    return;
  }
  const { lines } = store.doc;
  const told = places(store.doc, only);
  const left = lines.length - told.length;
  if (only === null && left > 0)
    warn("fill", `Only the first ${AHEAD} open lines after the last given one are written now: further on, the model loses the thread. Take what you like, then fill in again for the other ${left}; or write how it ends.`);
  stop();
  const control = new AbortController();
  running = control;
  const batch = { request: body, only, places: told, state: "running", progress: null, filling: null, waiting: null, ahead: 0, before: lines.map((line) => line.text) };
  const update = (patch) => {
    if (store.ui.batch !== batch) return;
    Object.assign(batch, patch);
    show({});
  };
  show({ batch, preview: null });
  say("Writing…");
  try {
    const chosen = (filling) => choose(spread(filling, told, lines));
    const shown = ({ filling, ...patch }) => update(filling ? { ...patch, filling: chosen(filling) } : patch);
    const filling = chosen(await patiently(() => ask(body, control.signal, shown), control.signal, shown));
    update({ filling, state: "done", progress: null });
    if (store.ui.batch === batch) arrived(batch);
    say(`${filling.candidates.length} candidates, best first.`);
  } catch (error) {
    if (error.name === "AbortError") {
      update({ state: "stopped", waiting: null });
      if (store.ui.batch === batch) say("Stopped.");
    } else {
      update({ state: "failed", waiting: null });
      if (store.ui.batch === batch) failed(error, told, () => run(body, only, choose));
    }
  } finally {
    if (running === control) running = null;
  }
}

function ask(body, signal, update) {
  if (body.sentences.some((sentence) => sentence !== null))
    return api.fill(body, {
      signal,
      onWaiting: ({ ahead }) => update({ ahead }),
      onProgress: (progress) => update({ progress, ahead: 0 }),
      onCandidates: (filling) => update({ filling }),
    });
  // Nothing is given: a story from its length and its arc alone.
  return api.write({ ...body, sentences: body.sentences.length }, signal);
}

/** Tries again, when the server says how long to wait, until it has room. */
async function patiently(work, signal, update) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (error.status !== 429) throw error;
      for (let left = Math.max(1, error.wait ?? 2); left > 0; left -= 1) {
        update({ waiting: left });
        await second(signal);
      }
      update({ waiting: null });
    }
  }
}

function second(signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(new DOMException("stopped", "AbortError"))), { once: true });
  });
}

function failed(error, places, again) {
  const line = places[/^sentences?\[(\d+)\]/.exec(error.field ?? "")?.[1]];
  const message = error.message.replace(/^line (\d+)/, (said, number) => (line === undefined ? said : `line ${line + 1}`));
  const told = message.charAt(0).toUpperCase() + message.slice(1);
  if (error.gone && said("gone")) return; // the page says so already, and when it is back
  // What only says that no server answers goes away by itself when the next save finds one.
  const bar = warn(error.gone ? "gone" : "fill", told.replace(/([^.!?])$/, "$1."), error.gone || error.status >= 500 ? [{ label: "Try again", act: again }] : []);
  if (line !== undefined) bar.dataset.line = line;
}

const later = [];

/** Does this when no candidates are being written: what is only shown beside them must not take their time. */
export function aside(work) {
  if (store.ui.batch?.state === "running") later.push(work);
  else work();
}

/** The model's belief about every point, a moment after the story changed. */
export function watchPosterior() {
  subscribe((_, { batch }) => batch?.state !== "running" && later.splice(0).forEach((work) => work()));
  let timer = null;
  let control = null;
  let asked = "";
  subscribe((doc, ui) => {
    const body = {
      sentences: doc.lines.map((line) => line.text.trim() || null),
      arc: doc.lines.map((line) => line.tag),
      seed: 0,
      model: usable(doc.model),
    };
    const key = JSON.stringify([body, ui.model]);
    if (key === asked || !ui.model) return;
    asked = key;
    clearTimeout(timer);
    control?.abort();
    if (ui.posterior && ui.posterior.length !== body.sentences.length) ui.posterior = ui.beliefs = null;
    const again = async () => {
      if (asked !== key) return; // the story has changed while candidates were written
      control = new AbortController();
      try {
        const { tags, factors } = await api.posterior(body, control.signal);
        if (asked === key) show({ posterior: tags, beliefs: factors ?? null });
      } catch (error) {
        // Only a picture: where a model has no posterior, or the server is busy, the arc goes without its band.
        if (error.name === "AbortError" || asked !== key) return;
        if (error.status === 429) timer = setTimeout(again, 1000 * Math.max(2, error.wait ?? 0));
        show({ posterior: null, beliefs: null });
      }
    };
    timer = setTimeout(() => aside(again), 300);
  });
}
