// The story being written, as plain values, and every way to change it: pure functions from a document to the next.
//
// A document has the fields that a branch stores (schema.js). A line is a sentence, or a gap where it has no words. Its
// id stays with it while others come and go. Undo is the editor's (editor.js). Nothing here touches the page.

import { CONTENT_FIELDS, LINE, PERSON, SAVED_FIELDS, STORY } from "./schema.js";

export const MOST = STORY.lines.maxItems;
/** Characters of one sentence, at most. */
export const LONGEST = LINE.text.maxLength;
/** Gaps of a new story, its beginning and ending among them. */
const USUAL = 5;

const defaults = (fields) => Object.fromEntries(Object.entries(fields).map(([name, rule]) => [name, structuredClone(rule.default)]));

export const newId = () => Math.random().toString(36).slice(2, 12).padEnd(10, "0");

export const blank = (fields = {}) => ({ ...defaults(LINE), id: newId(), ...fields });

export const empty = (count = USUAL) => ({ ...defaults(STORY), lines: Array.from({ length: count }, (_, i) => blank({ paragraph: i === 0 })) });

export const isGap = (line) => !line.text.trim();

/** Whether the model is to write this line: a gap, or one so marked; never a locked one. */
export const isWritten = (line) => isGap(line) || (line.write && !line.locked);

export const lineOf = (doc, id) => doc.lines.find((line) => line.id === id);
export const numberOf = (doc, id) => doc.lines.findIndex((line) => line.id === id) + 1;

const hasBlankLines = (doc) => doc.lines.every((line) => isGap(line) && !line.start && line.tag === null);

const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Whether the writer has filled in nothing: no line, no cast, no notes. */
export function isBlank(doc) {
  const state = stored(doc);
  return hasBlankLines(doc) && CONTENT_FIELDS.every((name) => name === "lines" || equal(state[name], STORY[name].default));
}

/** Whether two stored states say the same; a state of an older version has the default where it lacks a field. */
export const sameState = (a, b) => SAVED_FIELDS.every((name) => equal(a[name] ?? STORY[name].default, b[name] ?? STORY[name].default));

/** A short name for a text: other texts have other names. */
export function hash(text) {
  let value = 5381;
  for (const letter of text) value = (value * 33 + letter.codePointAt(0)) % 2 ** 48;
  return value.toString(36);
}

/** A short name for a stored state. */
export const digest = (state) => hash(JSON.stringify(SAVED_FIELDS.map((name) => state[name] ?? STORY[name].default)));

export const set = (doc, settings) => ({ ...doc, ...settings });

const changed = (doc, id, fields) => ({ ...doc, lines: doc.lines.map((line) => (line.id === id ? { ...line, ...fields } : line)) });

/** Words that were put in by hand: the line is the writer's own from then on. */
export const type = (doc, id, text) => changed(doc, id, { text, write: false });

export const lock = (doc, id, locked) => (isGap(lineOf(doc, id)) ? doc : changed(doc, id, { locked }));

export const mark = (doc, id, write) => (lineOf(doc, id).locked || isGap(lineOf(doc, id)) ? doc : changed(doc, id, { write }));

export const open = (doc, id, start) => (lineOf(doc, id).start === start ? doc : changed(doc, id, { start }));

/** The points of the arc at some lines: {id: label, or null for free}. */
export function bend(doc, tags) {
  if (doc.lines.every((line) => !(line.id in tags) || tags[line.id] === line.tag)) return doc;
  return { ...doc, lines: doc.lines.map((line) => (line.id in tags ? { ...line, tag: tags[line.id] } : line)) };
}

/** Lines before the one at place `at`. */
export function insert(doc, at, added = [blank()]) {
  if (doc.lines.length + added.length > MOST) return doc;
  const lines = [...doc.lines];
  // What comes before the first sentence of a paragraph, and says so, begins it from then on.
  if (added[0].paragraph && lines[at]) lines[at] = { ...lines[at], paragraph: false };
  return { ...doc, lines: lines.toSpliced(at, 0, ...added) };
}

/** As many lines as asked for: gaps are added before the ending, or taken away from the last one up. */
export function resize(doc, count) {
  const wanted = Math.min(MOST, Math.max(1, count));
  const lines = [...doc.lines];
  while (lines.length < wanted) lines.splice(lines.length < 2 || isGap(lines.at(-1)) ? lines.length : lines.length - 1, 0, blank());
  for (let i = lines.length - 1; i > 0 && lines.length > wanted; i -= 1) if (isGap(lines[i]) && !lines[i].start && !lines[i].paragraph) lines.splice(i, 1);
  return lines.length === doc.lines.length ? doc : { ...doc, lines };
}

/** The line one place up (-1) or down (1). Paragraphs begin where they began. */
export function move(doc, id, by) {
  const at = numberOf(doc, id) - 1;
  const to = at + by;
  if (to < 0 || to >= doc.lines.length) return doc;
  const lines = [...doc.lines];
  const { paragraph } = lines[at];
  [lines[at], lines[to]] = [{ ...lines[to], paragraph }, { ...lines[at], paragraph: lines[to].paragraph }];
  return { ...doc, lines };
}

export function remove(doc, id) {
  const at = numberOf(doc, id) - 1;
  if (doc.lines.length < 2 || doc.lines[at].locked) return doc;
  const lines = doc.lines.toSpliced(at, 1);
  if (lines[at] && doc.lines[at].paragraph) lines[at] = { ...lines[at], paragraph: true };
  return { ...doc, lines };
}

/** Lines out of paragraphs of sentences. */
export const linesOf = (paragraphs) => paragraphs.flatMap((sentences) => sentences.map((text, at) => blank({ text, paragraph: at === 0 })));

/**
 * Sentences pasted into a line between two of its characters, in paragraphs; in a blank story they are the story.
 * `left` are those for which there was no room, `last` is the id of the last that there was room for.
 */
export function paste(doc, id, from, to, paragraphs) {
  const pasted = linesOf(paragraphs);
  if (hasBlankLines(doc)) return { doc: { ...doc, lines: pasted.slice(0, MOST) }, left: Math.max(0, pasted.length - MOST), last: pasted.at(-1).id };
  const at = numberOf(doc, id) - 1;
  const line = doc.lines[at];
  const before = line.text.slice(0, from).trim();
  const after = line.text.slice(to).trim();
  const room = MOST - doc.lines.length + (before ? 0 : 1) - (after ? 1 : 0);
  const fitting = pasted.slice(0, Math.max(0, room));
  if (!fitting.length) return { doc, left: pasted.length };
  fitting[0] = before ? { ...fitting[0], paragraph: false } : { ...fitting[0], id: line.id, tag: line.tag, paragraph: line.paragraph };
  const pieces = [...(before ? [{ ...line, text: before }] : []), ...fitting, ...(after ? [blank({ text: after })] : [])];
  return { doc: { ...doc, lines: doc.lines.toSpliced(at, 1, ...pieces) }, left: pasted.length - fitting.length, last: fitting.at(-1).id };
}

/** A candidate's sentences, by id of the line, put into the story. What is taken is kept by the next fill. */
export function take(doc, sentences) {
  const lines = doc.lines.map((line) => (line.id in sentences && !line.locked ? { ...line, text: sentences[line.id], write: false } : line));
  return { ...doc, lines };
}

/** The writer's fields as a version has them; a version of an older Fabula may not have all. */
export function revert(doc, version) {
  const names = CONTENT_FIELDS.filter((name) => name in version);
  if (names.every((name) => equal(version[name], doc[name]))) return doc;
  return { ...doc, ...Object.fromEntries(names.map((name) => [name, version[name]])) };
}

/** What a branch stores of a document. */
export function stored(doc) {
  const state = Object.fromEntries(Object.keys(STORY).map((name) => [name, doc[name]]));
  // A person without a name is a row that the writer has only begun.
  return { ...state, people: doc.people.filter((person) => person.name.trim()) };
}

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

/** Lines out of what was stored or imported, each with an id of its own; null where they are none. */
function asLines(lines) {
  if (!Array.isArray(lines) || !lines.length || lines.some((line) => typeof line?.text !== "string")) return null;
  const known = new Set();
  return lines.slice(0, MOST).map((line, at) => {
    // Words that are too long are kept, for the server says which line it does not take.
    const result = { ...conformed(LINE, line), text: line.text.replace(/\s*\n\s*/g, " ") };
    if (!result.id || known.has(result.id)) result.id = newId();
    known.add(result.id);
    return { ...result, paragraph: result.paragraph || at === 0, locked: result.locked && !isGap(result) };
  });
}

const isKept = (entry) =>
  typeof entry?.id === "string" && typeof entry.sentences === "object" && entry.sentences !== null && !Array.isArray(entry.sentences) &&
  Object.values(entry.sentences).every((text) => typeof text === "string");

const asPeople = (people) =>
  (Array.isArray(people) ? people : [])
    .filter((person) => typeof person?.name === "string")
    .map((person) => conformed(PERSON, person))
    .slice(0, STORY.people.maxItems);

/** A document out of what was stored or imported; null where it is none. */
export function restored(state) {
  const lines = asLines(state?.lines);
  if (!lines) return null;
  // Before lines had ids, a kept candidate named them by their places.
  const byId = (entry) =>
    Array.isArray(entry?.sentences) ? { ...entry, sentences: Object.fromEntries((entry.lines ?? []).flatMap((at) => (lines[at] && entry.sentences[at] ? [[lines[at].id, entry.sentences[at].text]] : []))) } : entry;
  const tray = Array.isArray(state.tray) ? state.tray.map(byId).filter(isKept).slice(0, TRAY) : [];
  return { ...empty(), ...conformed(STORY, state), lines, people: asPeople(state.people), tray };
}

/** Candidates that a branch keeps, favourites first to stay. */
export const TRAY = STORY.tray.maxItems;

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
