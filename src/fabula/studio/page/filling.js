// Asking for candidates: what is sent, the stream that comes back, stopping, and trying again when the server is busy.

import * as api from "./api.js";
import { clear, say, warn } from "./messages.js";
import { isWritten, set } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

export const SAMPLES = 50;
const SEEDS = 2 ** 31;

let running = null;

/** What the sampler is told: the story as it stands. With `only`, every other line that has words is kept. */
export function request(doc, only = null) {
  const written = doc.lines.map((line, i) => (only === null ? isWritten(line) : i === only || !line.text.trim()));
  const starts = Object.fromEntries(
    doc.lines.flatMap((line, i) => (written[i] && line.start.trim() ? [[String(i + 1), line.start.trim()]] : [])),
  );
  return {
    sentences: doc.lines.map((line, i) => (written[i] ? null : line.text.trim())),
    arc: doc.lines.some((line) => line.tag !== null) ? doc.lines.map((line) => line.tag) : null,
    candidates: doc.candidates,
    samples: SAMPLES,
    sampler: "bridge",
    seed: doc.seed,
    starts: Object.keys(starts).length ? starts : null,
    model: doc.model,
    temperature: doc.temperature,
    top_k: null,
  };
}

/** What a link carries of a request. */
export function recipe({ sentences, arc, starts, seed, model, candidates, samples, sampler, temperature, top_k }) {
  return { model: model ?? store.ui.model, seed, settings: { candidates, samples, sampler, temperature, top_k }, sentences, arc, starts };
}

export const stop = () => running?.abort();

/** Candidates for the blank and marked lines; asked again for the very same, with another seed. */
export function fill() {
  const { batch } = store.ui;
  const same = batch && batch.only === null && batch.state !== "failed" && equal(batch.request, request(store.doc));
  if (same) change(set, { seed: (store.doc.seed + 1) % SEEDS });
  return run(request(store.doc), null);
}

/** Candidates for one line; the others are kept. */
export function regenerate(i) {
  if (store.doc.lines[i].locked) return warn("fill", `Line ${i + 1} is locked; unlock it to have it written anew.`);
  const { batch } = store.ui;
  if (batch && equal(batch.request, request(store.doc, i))) change(set, { seed: (store.doc.seed + 1) % SEEDS });
  return run(request(store.doc, i), i);
}

/** Exactly this, as a link says it. */
export const repeat = (body) => run(body, null);

const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

async function run(body, only) {
  clear("fill");
  clear("gone");
  if (body.sentences.every((sentence) => sentence !== null)) {
    warn("fill", "Every line has words already. Clear a line, or mark one with “Write this”, and Fabula writes it.");
    return;
  }
  stop();
  const control = new AbortController();
  running = control;
  const batch = { request: body, only, state: "running", progress: null, filling: null, waiting: null };
  const update = (patch) => {
    if (store.ui.batch !== batch) return;
    Object.assign(batch, patch);
    show({});
  };
  show({ batch, preview: null });
  say("Writing…");
  try {
    const filling = await patiently(() => ask(body, control.signal, update), control.signal, update);
    update({ filling, state: "done", progress: null });
    say(`${filling.candidates.length} candidates, best first.`);
  } catch (error) {
    if (error.name === "AbortError") {
      update({ state: "stopped", waiting: null });
      if (store.ui.batch === batch) say("Stopped.");
    } else {
      update({ state: "failed", waiting: null });
      if (store.ui.batch === batch) failed(error, () => run(body, only));
    }
  } finally {
    if (running === control) running = null;
  }
}

function ask(body, signal, update) {
  if (body.sentences.some((sentence) => sentence !== null))
    return api.fill(body, {
      signal,
      onProgress: (progress) => update({ progress }),
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

function failed(error, again) {
  const line = /^sentences?\[(\d+)\]/.exec(error.field ?? "")?.[1];
  const told = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  // What only says that no server answers goes away by itself when the next save finds one.
  const bar = warn(error.gone ? "gone" : "fill", told.replace(/([^.!?])$/, "$1."), error.gone || error.status >= 500 ? [{ label: "Try again", act: again }] : []);
  if (line !== undefined) bar.dataset.line = line;
}

/** The model's belief about every point, a moment after the story changed. */
export function watchPosterior() {
  let timer = null;
  let control = null;
  let asked = "";
  subscribe((doc, ui) => {
    const body = {
      sentences: doc.lines.map((line) => line.text.trim() || null),
      arc: doc.lines.map((line) => line.tag),
      seed: 0,
      model: doc.model,
    };
    const key = JSON.stringify([body, ui.model]);
    if (key === asked || !ui.model) return;
    asked = key;
    clearTimeout(timer);
    control?.abort();
    if (ui.posterior && ui.posterior.length !== body.sentences.length) ui.posterior = null;
    timer = setTimeout(async () => {
      control = new AbortController();
      try {
        const { tags } = await api.posterior(body, control.signal);
        if (asked === key) show({ posterior: tags });
      } catch (error) {
        // Only a picture: where a model has no posterior, or the server is busy, the arc goes without its band.
        if (error.name !== "AbortError" && asked === key) {
          asked = error.status === 429 ? "" : asked;
          show({ posterior: null });
        }
      }
    }, 300);
  });
}
