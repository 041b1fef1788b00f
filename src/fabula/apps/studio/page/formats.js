// A story as a file and back: plain text for the command line, Markdown for readers, JSON with everything.

import { readTag } from "./lanes.js";
import { sign, unsign } from "./moods.js";
import { rowsOf } from "./people.js";
import { paragraphs } from "./split.js";
import { blank, LONGEST, linesOf, MOST, empty, restored, stored } from "./state.js";

const MARK = "fabula-story";

/** A sentence a row, `_` where one is missing, an empty row between paragraphs: what `fabula fill --file` reads. */
export const toText = (doc) => paragraphsOf(doc, true).map((group) => group.map((text) => text || "_").join("\n")).join("\n\n") + "\n";

const escaped = (text) => text.replace(/[\\`*_<>[\]#&|]/g, "\\$&").replace(/^(?:(\d+)(?=[.)])|(?=[-+=~]))/, "$1\\");
const unescaped = (text) => text.replace(/\\([!-/:-@[-`{-~])/g, "$1");

// What stands in a comment of HTML: two hyphens in a row would end it.
const hidden = (text) => text.replaceAll("&", "&amp;").replace(/[<>|]/g, (sign) => `&#${sign.codePointAt(0)};`).replaceAll("--", "-&#45;");
const shown = (text) => text.replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(code)).replaceAll("&amp;", "&");
const COMMENT = /^<!-- fabula\n([^]*?)^-->/m;

/** The sentences in their paragraphs; gaps are left out unless `gaps` are wanted. */
export function paragraphsOf(doc, gaps = false) {
  const groups = [];
  for (const line of doc.lines) if (line.paragraph || !groups.length) groups.push([line]);
    else groups.at(-1).push(line);
  return groups.map((group) => group.map(({ text }) => text.trim()).filter((text) => text || gaps)).filter((group) => group.length);
}

/**
 * Prose to be read: a title and paragraphs, whose sentences are a row of the file each. What no reader wants stands in a
 * comment at the end: which sentences are missing, the arc, the cast, the notes.
 */
export function toMarkdown(doc, title) {
  const rows = paragraphsOf(doc).map((group) => group.map(escaped).join("\n"));
  const gaps = doc.lines.flatMap((line, i) => (line.text.trim() ? [] : [`${i + 1}${line.paragraph ? "p" : ""}`]));
  const known = [
    ...(gaps.length ? [`blank: ${gaps.join(" ")}`] : []),
    ...(doc.lines.some((line) => line.tag !== null) ? [`arc: ${doc.lines.map((line) => sign(line.tag)).join(" ")}`] : []),
    ...doc.people.map(({ name, pronoun, about }) => `person: ${[name, pronoun ?? "", about].map(hidden).join(" | ")}`),
    ...rowsOf(doc).map((note) => `note: ${hidden(note)}`),
  ];
  return [`# ${escaped(title)}`, "", rows.join("\n\n"), "", "<!-- fabula", ...known, "-->", ""].join("\n");
}

export const toJson = (doc, title) => JSON.stringify({ format: MARK, version: 1, title, state: stored(doc) }, null, 1) + "\n";

const counted = (lines) => {
  const long = lines.findIndex((line) => line.text.length > LONGEST);
  if (!lines.some((line) => line.text.trim())) throw new Error("there are no sentences in it");
  if (long >= 0) throw new Error(`sentence ${long + 1} has ${lines[long].text.length.toLocaleString("en")} characters; the most is ${LONGEST.toLocaleString("en")}`);
  if (lines.length > MOST) throw new Error(`it has ${lines.length} sentences; a story has at most ${MOST}`);
  return { ...empty(), lines };
};

export const fromParagraphs = (groups, title = "") => ({ title, doc: counted(linesOf(groups)) });

/** Where there are empty rows, they part paragraphs; else every row is one. */
export function fromText(text) {
  const parts = text.replaceAll("\r\n", "\n").trim().split(/\n[ \t]*\n/);
  return fromParagraphs(parts.length > 1 ? parts.map((part) => paragraphs(part).flat()).filter((part) => part.length) : paragraphs(text));
}

export function fromMarkdown(text, labels, factors = null) {
  const plain = text.replaceAll("\r", "");
  const own = COMMENT.exec(plain);
  const rows = plain.replace(COMMENT, "").split("\n");
  const title = unescaped(rows.find((row) => /^# /.test(row))?.slice(2).trim() ?? "");
  const known = (key) => (own?.[1] ?? "").split("\n").flatMap((row) => (row.startsWith(`${key}: `) ? [row.slice(key.length + 2)] : []));
  const lines = own ? ours(rows) : linesOf(foreign(rows));
  for (const [, place, paragraph] of (known("blank")[0] ?? "").slice(0, 8 * MOST).matchAll(/(\d+)(p?)/g)) {
    if (lines.length > MOST) break;
    lines.splice(Number(place) - 1, 0, blank({ paragraph: paragraph === "p" }));
    if (paragraph && lines[place]) lines[place].paragraph = false;
  }
  const arc = known("arc")[0] ?? rows.find((row) => /^Arc:/.test(row))?.slice(4) ?? "";
  const tags = arc.trim().split(/\s+/).map((word) => unsign(word, labels) ?? readTag(word, factors));
  const doc = counted(lines.map((line, i) => ({ ...line, tag: tags[i] ?? null })));
  const people = known("person").map((row) => row.split(" | ").map(shown)).map(([name, pronoun, about]) => ({ name, pronoun: pronoun || null, about: about ?? "" }));
  return { title, doc: restored({ ...doc, people, notes: known("note").map(shown).join("\n") }) };
}

/** A sentence a row, an empty row between paragraphs. */
function ours(rows) {
  const body = rows.filter((row) => !/^#/.test(row)).map((row) => row.trim());
  return body.flatMap((row, i) => (row ? [blank({ text: unescaped(row), paragraph: !body[i - 1] })] : []));
}

/** The paragraphs of a text that is not of this page: a list, with `_` where a sentence is missing, or prose. */
function foreign(rows) {
  const body = rows.filter((row) => !/^#|^Arc:|^\s*(?:[-*_]\s*){3,}$/.test(row));
  const items = body.filter((row) => row.trim()).map((row) => /^\s*(?:\d+[.)]|[-*+])\s+(.*)$/.exec(row)?.[1]);
  if (items.every((item) => item !== undefined)) return [items.map((item) => (item.trim() === "_" ? "" : unescaped(item.trim())))];
  const prose = body.map((row) => row.trim() || "\n").join(" ");
  return paragraphs(unescaped(prose));
}

export function fromJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("it is not valid JSON");
  }
  const doc = value?.format === MARK ? restored(value.state) : null;
  if (!doc) throw new Error("it is not a story that the studio exported");
  counted([...doc.lines]);
  return { title: typeof value.title === "string" ? value.title.slice(0, 200) : "", doc };
}
