// The story being written, as plain values, and every way to change it: pure functions from a document to the next.
//
// A document is what a branch stores (see the server's `state`) plus `burst`, which says that the next keystroke belongs
// to the same step of undo. Nothing here touches the page.

export const FEWEST = 2;
export const MOST = 64;
/** Characters of one line, as the server has it. */
export const LONGEST = 4_000;
const STEPS = 100;
/** What the steps of undo may weigh together when stored, in characters: a save stays quick however long the session. */
const STORED = 200_000;

export const blank = () => ({ text: "", write: false, locked: false, start: "", tag: null });

export const empty = (count = 5) => ({
  lines: Array.from({ length: count }, blank),
  seed: 0,
  candidates: 3,
  temperature: null,
  model: null,
  undo: [],
  redo: [],
  taken: [],
  tray: [],
  people: [],
  notes: "",
  burst: null,
});

/** Whether the model is to write this line: a blank one, or one so marked; never a locked one. */
export const isWritten = (line) => !line.text.trim() || (line.write && !line.locked);

/** Whether nothing has been said yet. */
export const isBlank = (doc) => doc.lines.every((line) => !line.text.trim() && !line.start && line.tag === null);

// Every change of the lines goes through here: the lines before it are one step of undo.
function edit(doc, lines, what, burst = null) {
  if (burst !== null && burst === doc.burst) return { ...doc, lines, redo: [] };
  const undo = [...doc.undo, { what, lines: doc.lines }].slice(-STEPS);
  return { ...doc, lines, undo, redo: [], burst };
}

const replaced = (lines, i, change) => lines.map((line, at) => (at === i ? { ...line, ...change } : line));

// Whoever makes room for a line wants that line written: what stands is kept, until it is marked again.
const kept = (lines) => lines.map((line) => (line.write && line.text.trim() ? { ...line, write: false } : line));

/** Typing makes a line one's own. */
export function type(doc, i, text) {
  if (doc.lines[i].locked || doc.lines[i].text === text) return doc;
  const lines = replaced(doc.lines, i, { text, write: false });
  return edit(doc, text.trim() ? lines : kept(lines), "typing", `type ${i}`);
}

/** The next keystroke is a step of undo of its own. */
export const pause = (doc) => (doc.burst === null ? doc : { ...doc, burst: null });

export function lock(doc, i, locked) {
  if (!doc.lines[i].text.trim()) return doc;
  return edit(doc, replaced(doc.lines, i, { locked }), locked ? "locking a line" : "unlocking a line");
}

export function clear(doc, i) {
  const line = doc.lines[i];
  if (line.locked || (!line.text && !line.start)) return doc;
  return edit(doc, kept(replaced(doc.lines, i, { text: "", write: false, start: "" })), "clearing a line");
}

export function mark(doc, i, write) {
  if (doc.lines[i].locked || !doc.lines[i].text.trim()) return doc;
  return edit(doc, replaced(doc.lines, i, { write }), "marking a line");
}

export function open(doc, i, start) {
  if (doc.lines[i].start === start) return doc;
  return edit(doc, replaced(doc.lines, i, { start }), "opening words", `open ${i}`);
}

/** The point of the arc at line i: a label, or null for free. */
export function bend(doc, i, tag, burst = null) {
  if (doc.lines[i].tag === tag) return doc;
  return edit(doc, replaced(doc.lines, i, { tag }), "bending the arc", burst);
}

export function shape(doc, tags) {
  if (doc.lines.every((line, i) => line.tag === tags[i])) return doc;
  return edit(doc, doc.lines.map((line, i) => ({ ...line, tag: tags[i] })), "the shape of the arc");
}

export function insert(doc, i, lines = [blank()]) {
  if (doc.lines.length + lines.length > MOST) return doc;
  return edit(doc, [...kept(doc.lines.slice(0, i)), ...lines, ...kept(doc.lines.slice(i))], "adding a line");
}

/** As many lines as asked for: blank ones are added before the ending, or taken away from the last one up. */
export function resize(doc, count) {
  const wanted = Math.min(MOST, Math.max(FEWEST, count));
  const lines = wanted > doc.lines.length ? kept(doc.lines) : [...doc.lines];
  while (lines.length < wanted) lines.splice(lines.at(-1).text.trim() ? lines.length - 1 : lines.length, 0, blank());
  for (let i = lines.length - 1; i >= 0 && lines.length > wanted; i -= 1)
    if (!lines[i].text.trim() && !lines[i].start) lines.splice(i, 1);
  return lines.length === doc.lines.length ? doc : edit(doc, lines, "changing the length");
}

export function remove(doc, i) {
  if (doc.lines.length <= FEWEST || doc.lines[i].locked) return doc;
  return edit(doc, doc.lines.filter((_, at) => at !== i), "removing a line");
}

/** Line i one place up (-1) or down (1); its point of the arc goes with it. */
export function move(doc, i, by) {
  const to = i + by;
  if (to < 0 || to >= doc.lines.length) return doc;
  const lines = [...doc.lines];
  [lines[i], lines[to]] = [lines[to], lines[i]];
  return edit(doc, lines, "moving a line");
}

/** Line i to another place, the others closing up. */
export function reorder(doc, i, to) {
  if (i === to || to < 0 || to >= doc.lines.length) return doc;
  const lines = doc.lines.filter((_, at) => at !== i);
  lines.splice(to, 0, doc.lines[i]);
  return edit(doc, lines, "moving a line");
}

/** Sentences pasted at line i: into it if it is blank, else after it; in a blank story they are the story. */
export function paste(doc, i, sentences) {
  const pasted = sentences.map((text) => ({ ...blank(), text }));
  const all = isBlank(doc);
  const into = !doc.lines[i].text.trim();
  const before = all ? [] : doc.lines.slice(0, into ? i : i + 1);
  let after = all ? [] : doc.lines.slice(i + 1);
  // Blank lines that follow take what does not fit otherwise.
  while (before.length + pasted.length + after.length > MOST && after.some((line) => !line.text.trim() && !line.start)) {
    const spare = after.findIndex((line) => !line.text.trim() && !line.start);
    after = after.filter((_, at) => at !== spare);
  }
  const room = MOST - before.length - after.length;
  if (into && !all && pasted.length) pasted[0].tag = doc.lines[i].tag;
  const lines = [...before, ...pasted.slice(0, room), ...after];
  while (lines.length < FEWEST) lines.push(blank());
  return { doc: edit(doc, lines, "pasting"), left: Math.max(0, pasted.length - room) };
}

/** A candidate's sentences, by line, put into the story; `entry` says how they came about. */
export function take(doc, sentences, entry) {
  const lines = doc.lines.map((line, i) =>
    i in sentences && !line.locked ? { ...line, text: sentences[i], write: true } : line,
  );
  return { ...edit(doc, lines, "taking a candidate"), taken: [...doc.taken, entry].slice(-STEPS) };
}

/** The lines as a version had them. */
export function revert(doc, lines) {
  return JSON.stringify(lines) === JSON.stringify(doc.lines) ? doc : edit(doc, lines, "going back to a version");
}

export const set = (doc, settings) => ({ ...doc, ...settings });

export function undo(doc) {
  const last = doc.undo.at(-1);
  if (!last) return doc;
  const redo = [...doc.redo, { what: last.what, lines: doc.lines }];
  return { ...doc, lines: last.lines, undo: doc.undo.slice(0, -1), redo, burst: null };
}

export function redo(doc) {
  const next = doc.redo.at(-1);
  if (!next) return doc;
  const undo = [...doc.undo, { what: next.what, lines: doc.lines }];
  return { ...doc, lines: next.lines, undo, redo: doc.redo.slice(0, -1), burst: null };
}

/** What a branch stores of a document: the oldest steps are dropped where they would weigh too much. */
export function stored({ lines, seed, candidates, temperature, model, undo, redo, taken, tray, people, notes }) {
  const lighter = (steps, budget) => {
    let at = steps.length;
    for (let weight = 0; at > 0; at -= 1) {
      weight += JSON.stringify(steps[at - 1]).length;
      if (weight > budget) break;
    }
    return steps.slice(at);
  };
  const half = STORED / 2;
  return {
    lines, seed, candidates, temperature, model, tray, people, notes,
    undo: lighter(undo, half), redo: lighter(redo, half), taken: lighter(taken, half),
  };
}

const isLine = (line) =>
  line !== null && typeof line === "object" && typeof line.text === "string" && typeof line.start === "string";

const asLine = ({ text, write, locked, start, tag }) => ({
  text, start, write: Boolean(write), locked: Boolean(locked) && text.trim() !== "", tag: typeof tag === "string" ? tag : null,
});

const asLines = (lines) =>
  Array.isArray(lines) && lines.length >= FEWEST && lines.length <= MOST && lines.every(isLine) ? lines.map(asLine) : null;

/** Candidates that a branch keeps, favourites first to stay. */
export const TRAY = 60;

const isKept = (entry) =>
  typeof entry?.id === "string" && Array.isArray(entry.lines) && Array.isArray(entry.sentences) &&
  entry.sentences.every((sentence) => typeof sentence?.text === "string");

/** Candidates into the tray, newest first; what no longer fits is the oldest that is no favourite. */
export function collect(doc, entries) {
  const known = new Set(doc.tray.map((entry) => entry.id));
  const fresh = entries.filter((entry) => !known.has(entry.id));
  if (!fresh.length) return doc;
  const all = [...fresh, ...doc.tray];
  const room = TRAY - all.filter((entry) => entry.favourite).length;
  const others = new Set(all.filter((entry) => !entry.favourite).slice(0, Math.max(0, room)));
  return { ...doc, tray: all.filter((entry) => entry.favourite || others.has(entry)).slice(0, TRAY) };
}

/** A change of one kept candidate; null removes it. */
export function keepsake(doc, id, change) {
  const tray = change === null ? doc.tray.filter((entry) => entry.id !== id) : doc.tray.map((entry) => (entry.id === id ? { ...entry, ...change } : entry));
  return { ...doc, tray };
}

const asPeople = (people) =>
  (Array.isArray(people) ? people : [])
    .filter((person) => typeof person?.name === "string")
    .map(({ name, pronoun, about }) => ({ name: name.slice(0, 60), pronoun: ["he", "she", "they"].includes(pronoun) ? pronoun : null, about: typeof about === "string" ? about.slice(0, 200) : "" }))
    .slice(0, 20);

/** A document out of what was stored or imported; null where it is none. */
export function restored(state) {
  const lines = asLines(state?.lines);
  if (!lines) return null;
  const steps = (list) =>
    (Array.isArray(list) ? list : [])
      .map((step) => ({ what: String(step?.what ?? "a change"), lines: asLines(step?.lines) }))
      .filter((step) => step.lines)
      .slice(-STEPS);
  const whole = (value, otherwise) => (Number.isSafeInteger(value) && value >= 0 ? value : otherwise);
  return {
    ...empty(),
    lines,
    seed: whole(state.seed, 0),
    candidates: Math.min(10, Math.max(1, whole(state.candidates, 3))),
    temperature: typeof state.temperature === "number" ? state.temperature : null,
    model: typeof state.model === "string" ? state.model : null,
    undo: steps(state.undo),
    redo: steps(state.redo),
    taken: Array.isArray(state.taken) ? state.taken.slice(-STEPS) : [],
    people: asPeople(state.people),
    notes: typeof state.notes === "string" ? state.notes.slice(0, LONGEST) : "",
    tray: Array.isArray(state.tray) ? state.tray.filter(isKept).slice(0, TRAY) : [],
  };
}
