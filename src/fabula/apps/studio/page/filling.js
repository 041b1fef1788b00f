// Asking for candidates: what is sent, the stream that comes back, stopping, and trying again when the server is busy.

import * as api from "./api.js";
import { named, noted, sendable } from "./people.js";
import * as likeness from "./likeness.js";
import { clear, said, say, warn } from "./messages.js";
import { isGap, isWritten, lineOf, numberOf, set } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

/**
 * Gaps after the last given sentence that are asked for at once. With the shipped model the best of ten samples stays
 * as probable as a short story up to 20 sentences, is 20 nats worse at 24, and falls apart from 30 on.
 */
const AHEAD = 20;
/** A story of more sentences is not sent whole: so many around the first gaps are. */
const WHOLE = 24;
const AROUND = 12;
const SEEDS = 2 ** 31;
/** Sentences of a request, at least. */
const FEWEST = 2;

let running = null;

/** A story may name a model that is not installed here: the studio's own writes it then. */
export const usable = (model) => (store.ui.models.some((one) => one.name === model) ? model : null);

/** What the server says of the model that writes. */
export const modelOf = (doc = store.doc, { models, model } = store.ui) => models.find((one) => one.name === (usable(doc.model) ?? model));

/** The part of a long story that is sent, around the lines at these places: from one place to before another. */
export function windowOf(doc, wanted) {
  const { length } = doc.lines;
  if (length <= WHOLE || !wanted.length) return [0, Math.min(length, WHOLE)];
  const last = wanted.findLast((at) => at - wanted[0] < WHOLE);
  return [Math.max(0, wanted[0] - AROUND), Math.min(length, last + 1 + AROUND)];
}

/**
 * The places of the lines that are sent. With `only`, the ids of lines to be written, these and those that have words: a
 * gap is left out, because writing it unseen would take as long as all. At least two are sent, if need be a gap.
 */
export function places(doc, only = null) {
  const isWanted = (line) => (only === null ? isWritten(line) : only.includes(line.id));
  const wanted = doc.lines.flatMap((line, at) => (isWanted(line) ? [at] : []));
  const [from, to] = windowOf(doc, wanted);
  const all = doc.lines.map((_, at) => at).slice(from, to);
  if (only === null) {
    const last = all.findLastIndex((at) => !isWritten(doc.lines[at]));
    return all.slice(0, Math.max(last, 0) + 1 + AHEAD);
  }
  const sent = all.filter((at) => wanted.includes(at) || !isGap(doc.lines[at]));
  return sent.length < FEWEST && all.length >= FEWEST ? all.slice(Math.max(0, all.indexOf(sent[0]) - 1)).slice(0, FEWEST) : sent;
}

/** What the sampler reads: the story as it stands. With `only`, these lines are written and no others. */
export function request(doc, only = null) {
  const lines = places(doc, only).map((at) => ({ ...doc.lines[at], written: only === null ? isWritten(doc.lines[at]) : only.includes(doc.lines[at].id) || isGap(doc.lines[at]) }));
  while (lines.length < FEWEST) lines.push({ written: true, text: "", start: "", tag: null });
  const starts = Object.fromEntries(lines.flatMap(({ written, start }, i) => (written && start.trim() ? [[String(i + 1), start.trim()]] : [])));
  const { tense, person, length } = doc;
  const follows = modelOf(doc)?.voice?.length && (tense || person || length);
  return {
    sentences: lines.map(({ written, text }) => (written ? null : sendable(text))),
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
    ...(follows ? { voice: { tense, person, length } } : {}),
  };
}

/** What a link carries of a request. */
export function recipe({ sentences, arc, starts, people, notes, seed, model, candidates, samples, sampler, temperature, top_k, voice }) {
  return { model: model ?? store.ui.model, seed, settings: { candidates, samples, sampler, temperature, top_k, voice }, sentences, arc, starts, people, notes };
}

/** Who is called when candidates are complete. */
let arrived = () => {};
export const onArrival = (listener) => (arrived = listener);

export const stop = () => running?.abort();

const another = () => change(set, { seed: (store.doc.seed + 1) % SEEDS });
const isLocked = (only) => only.find((id) => lineOf(store.doc, id).locked);

/** Candidates for the gaps and marked sentences; asked again for the very same, with another seed. */
export function fill() {
  const { batch } = store.ui;
  if (batch && batch.only === null && batch.state !== "failed" && equal(batch.request, request(store.doc))) another();
  return run(request(store.doc), null);
}

/**
 * Other words for these sentences; all others are kept, and none that stands there is offered. `choose` picks from
 * candidates, best first; `notes` are read beside the writer's own; `start` are words to begin with.
 */
export function rewrite(only, { choose = (found, count) => found.slice(0, count), notes: demands = [], start = null } = {}) {
  const notes = [...demands];
  const locked = isLocked(only);
  if (locked) return warn("fill", `Sentence ${numberOf(store.doc, locked)} is locked; unlock it to have it written anew.`);
  const standing = Object.fromEntries(only.map((id) => [id, lineOf(store.doc, id).text.trim()]));
  const begun = start === null ? store.doc : { ...store.doc, lines: store.doc.lines.map((line) => (only.includes(line.id) ? { ...line, start } : line)) };
  if (store.ui.batch?.only && equal(store.ui.batch.only, only)) another();
  const body = request({ ...begun, seed: store.doc.seed }, only);
  // A model that follows a voice also follows what stands there; others would repeat it.
  if (modelOf()?.voice?.length) notes.unshift(...Object.values(standing).filter(Boolean).map((text) => sendable(`Now it reads, to be said in other words: ${text}`)));
  return run({ ...body, candidates: likeness.ASKED, notes: [...body.notes, ...notes] }, only, (filling, batch) => {
    const fresh = filling.candidates.filter((one) => batch.writes.some((at) => one.sentences[at].text.trim() !== standing[batch.ids[at]]));
    return { ...filling, candidates: choose(fresh, store.doc.candidates) };
  });
}

/** Exactly this, as a link says it. */
export const repeat = (body) => run(body, null);

/** Others like a candidate: it is read beside the notes, and of many new ones those nearest to it are shown. */
export function moreLike(candidate, { writes, only }) {
  const text = likeness.textOf(candidate, writes);
  return others(only, [likeness.example(candidate, writes)], (found, count, places) => likeness.nearest(found, places, text, count));
}

/** Others that are as different as can be from those that are shown. */
export function different(candidates, { writes, only }) {
  const texts = candidates.map((one) => likeness.textOf(one, writes));
  return others(only, [], (found, count, places) => likeness.farthest(found, places, texts, count));
}

function others(only, notes, choose) {
  if (only?.some((id) => !lineOf(store.doc, id))) return warn("fill", "The sentence that these were written for is gone.");
  another();
  const body = request(store.doc, only);
  return run({ ...body, candidates: likeness.ASKED, notes: [...body.notes, ...notes] }, only, (filling, batch) => {
    const chosen = choose(filling.candidates, store.doc.candidates, batch.writes);
    return { ...filling, candidates: chosen.length ? chosen : filling.candidates.slice(0, store.doc.candidates) };
  });
}

const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Which sentences of a long story were read, in words; empty where all were. */
function extent(sent, { lines }) {
  const left = lines.filter((line, at) => !sent.includes(at) && isGap(line)).length;
  const part = sent.length && (sent[0] > 0 || lines.length - 1 > sent.at(-1)) ? `Fabula reads sentences ${sent[0] + 1} to ${sent.at(-1) + 1} of ${lines.length} for this.` : "";
  return left && part ? `${part} Take what you like, then fill in again for the other gaps.` : part;
}

async function run(body, only, choose = (filling) => filling) {
  clear("fill");
  const { doc } = store;
  const sent = places(doc, only);
  const ids = sent.map((at) => doc.lines[at].id);
  const writes = ids.flatMap((id, at) => (body.sentences[at] === null && (only?.includes(id) ?? true) ? [at] : []));
  if (!writes.length) {
    warn("fill", "Every sentence has words already. Open a gap where one is missing, or put the caret into a sentence and choose “Rewrite”.");
    return;
  }
  stop();
  const control = new AbortController();
  running = control;
  const before = Object.fromEntries(doc.lines.map(({ id, text }) => [id, text]));
  const batch = { request: body, only, ids, writes, extent: extent(sent, doc), state: "running", progress: null, writing: null, filling: null, waiting: null, ahead: 0, before };
  const update = (patch) => {
    if (store.ui.batch !== batch) return;
    Object.assign(batch, patch);
    show({});
  };
  /** Without candidates nothing is left standing in the text. */
  const empty = (message = "") => {
    if (message) warn("fill", message);
    if (only && !batch.filling?.candidates.length) show({ batch: null });
  };
  show({ batch, preview: null, words: null });
  say("Writing…");
  try {
    const shown = ({ filling, ...patch }) => update(filling ? { ...patch, filling: choose(filling, batch) } : patch);
    const filling = choose(await patiently(() => ask(body, control.signal, shown), control.signal, shown), batch);
    update({ filling, state: "done", progress: null, writing: null });
    if (store.ui.batch !== batch) return;
    arrived(batch);
    const { length } = filling.candidates;
    if (length) say(length === 1 ? "One candidate." : `${length} candidates, best first.`);
    else empty("The model found no other words here. Try once more, or with more boldness.");
  } catch (error) {
    if (error.name === "AbortError") {
      update({ state: "stopped", waiting: null, writing: null });
      if (store.ui.batch === batch) empty();
      say("Stopped.");
    } else {
      update({ state: "failed", waiting: null, writing: null });
      if (store.ui.batch !== batch) return;
      empty();
      failed(error, sent, () => run(body, only, choose));
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
      onWriting: ({ lines }) => update({ writing: lines }),
      onCandidates: (filling) => update({ filling, writing: null }),
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

function failed(error, sent, again) {
  const line = sent[/^sentences?\[(\d+)\]/.exec(error.field ?? "")?.[1]];
  const message = error.message.replace(/^sentence(?:s\[\d+\]:| \d+)/, (words) => (line === undefined ? words : `sentence ${line + 1}`));
  const told = message.charAt(0).toUpperCase() + message.slice(1);
  if (error.gone && said("gone")) return; // the page says so already, and when it is back
  // What only says that no server answers goes away by itself when the next save finds one.
  warn(error.gone ? "gone" : "fill", told.replace(/([^.!?])$/, "$1."), error.gone || error.status >= 500 ? [{ label: "Try again", act: again }] : []);
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
    const [from, to] = windowOf(doc, doc.lines.flatMap(({ id }, at) => (id === ui.at ? [at] : [])));
    const lines = doc.lines.slice(from, to);
    const body = {
      sentences: lines.map((line) => sendable(line.text) || null),
      arc: lines.map((line) => line.tag),
      seed: 0,
      model: usable(doc.model),
    };
    const key = JSON.stringify([body, ui.model]);
    if (key === asked || !ui.model || lines.length < FEWEST) return;
    asked = key;
    clearTimeout(timer);
    control?.abort();
    if (ui.posterior && ui.posterior.length !== doc.lines.length) ui.posterior = ui.beliefs = null;
    // What lies outside the part that was read has no band.
    const spread = (beliefs) => beliefs && doc.lines.map((_, at) => beliefs[at - from]);
    const again = async () => {
      if (asked !== key) return; // the story has changed while candidates were written
      control = new AbortController();
      try {
        const { tags, factors } = await api.posterior(body, control.signal);
        if (asked === key) show({ posterior: spread(tags), beliefs: spread(factors ?? null) });
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
