// The story being written, as plain values, and every way to change it: pure functions from a document to the next.
//
// A document has the fields that a branch stores (schema.js) and `burst`, which says that the next keystroke belongs to
// the same step of undo. Nothing here touches the page.

import { CONTENT_FIELDS, LINE, PERSON, SAVED_FIELDS, STORY } from "./schema.js";

export const FEWEST = STORY.lines.minItems;
export const MOST = STORY.lines.maxItems;
/** Characters of one line, at most. */
export const LONGEST = LINE.text.maxLength;
const STEPS = STORY.undo.maxItems;
/** Characters that the stored steps of undo have together, at most: a save stays quick in a long session. */
const STORED = 200_000;

const defaults = (fields) => Object.fromEntries(Object.entries(fields).map(([name, rule]) => [name, structuredClone(rule.default)]));

export const blank = () => defaults(LINE);

export const empty = (count = 5) => ({ ...defaults(STORY), lines: Array.from({ length: count }, blank), burst: null });

/** Whether the model is to write this line: a blank one, or one so marked; never a locked one. */
export const isWritten = (line) => !line.text.trim() || (line.write && !line.locked);

const hasBlankLines = (doc) => doc.lines.every((line) => !line.text.trim() && !line.start && line.tag === null);

const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Whether the writer has filled in nothing: no line, no cast, no notes. */
export function isBlank(doc) {
  const state = stored(doc);
  return hasBlankLines(doc) && CONTENT_FIELDS.every((name) => name === "lines" || equal(state[name], STORY[name].default));
}

/** Whether two stored states say the same; a state of an older version has the default where it lacks a field. */
export const sameState = (a, b) => SAVED_FIELDS.every((name) => equal(a[name] ?? STORY[name].default, b[name] ?? STORY[name].default));

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
  const all = hasBlankLines(doc);
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

/** The writer's fields as a version has them; a version of an older Fabula may not have all. */
export function revert(doc, version) {
  const names = Object.keys(content(version));
  if (names.every((name) => equal(version[name], doc[name]))) return doc;
  const undo = [...doc.undo, step("going back to a version", doc, names)].slice(-STEPS);
  return { ...doc, ...content(version), undo, redo: [], burst: null };
}

export const content = (doc, names = CONTENT_FIELDS) => Object.fromEntries(names.filter((name) => name in doc).map((name) => [name, doc[name]]));

/** A step of undo: the fields as they are in `doc`. Most steps have `lines` alone. */
const step = (what, doc, names = CONTENT_FIELDS) => ({ what, ...content(doc, names) });

/** The document after the last of `doc[from]`, whose way back is then the last of `doc[to]`. */
function travel(doc, from, to) {
  const last = doc[from].at(-1);
  if (!last) return doc;
  const back = step(last.what, doc, Object.keys(content(last)));
  return { ...doc, ...content(last), [from]: doc[from].slice(0, -1), [to]: [...doc[to], back], burst: null };
}

export const set = (doc, settings) => ({ ...doc, ...settings });
export const undo = (doc) => travel(doc, "undo", "redo");
export const redo = (doc) => travel(doc, "redo", "undo");

/** What a branch stores of a document: the oldest steps are dropped where they would weigh too much. */
export function stored(doc) {
  const lighter = (steps) => {
    let at = steps.length;
    for (let weight = 0; at > 0; at -= 1) {
      weight += JSON.stringify(steps[at - 1]).length;
      if (weight > STORED / 2) break;
    }
    return steps.slice(at);
  };
  const state = Object.fromEntries(Object.keys(STORY).map((name) => [name, doc[name]]));
  // A person without a name is a row that the writer has only begun.
  const people = doc.people.filter((person) => person.name.trim());
  return { ...state, people, undo: lighter(doc.undo), redo: lighter(doc.redo), taken: lighter(doc.taken) };
}

const isLine = (line) =>
  line !== null && typeof line === "object" && typeof line.text === "string" && typeof line.start === "string";

/** A value by its rule of schema.js, cut or clamped to its bounds; the default where it is of another type. */
function conform({ type, nullable, default: otherwise, enum: options, minimum, maximum, maxLength, maxItems }, value) {
  if (value === null && nullable) return null;
  if (type === "array") return Array.isArray(value) ? value.slice(-maxItems) : [];
  if (type === "boolean") return Boolean(value);
  if (type === "string") return typeof value !== "string" || (options && !options.includes(value)) ? otherwise : value.slice(0, maxLength);
  if (type === "integer" ? !Number.isSafeInteger(value) : typeof value !== "number") return otherwise;
  return Math.min(maximum, Math.max(minimum, value));
}

const conformed = (fields, value) => Object.fromEntries(Object.entries(fields).map(([name, rule]) => [name, conform(rule, value[name])]));

// Words that are too long are kept, for the server says which line it does not take.
const asLine = (line) => ({ ...conformed(LINE, line), text: line.text, start: line.start, locked: Boolean(line.locked) && line.text.trim() !== "" });

const asLines = (lines) =>
  Array.isArray(lines) && lines.length >= FEWEST && lines.length <= MOST && lines.every(isLine) ? lines.map(asLine) : null;

/** Candidates that a branch keeps, favourites first to stay. */
export const TRAY = STORY.tray.maxItems;

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
    .map((person) => conformed(PERSON, person))
    .slice(0, STORY.people.maxItems);

const asSteps = (steps) =>
  (Array.isArray(steps) ? steps : [])
    .map((one) => ({ ...step(String(one?.what ?? "a change"), one ?? {}), lines: asLines(one?.lines) }))
    .filter((one) => one.lines)
    .map((one) => ("people" in one ? { ...one, people: asPeople(one.people) } : one))
    .map((one) => ("notes" in one ? { ...one, notes: conform(STORY.notes, one.notes) } : one))
    .slice(-STEPS);

/** A document out of what was stored or imported; null where it is none. */
export function restored(state) {
  const lines = asLines(state?.lines);
  if (!lines) return null;
  const tray = (Array.isArray(state.tray) ? state.tray.filter(isKept) : []).slice(0, TRAY);
  return { ...empty(), ...conformed(STORY, state), lines, people: asPeople(state.people), undo: asSteps(state.undo), redo: asSteps(state.redo), tray };
}
