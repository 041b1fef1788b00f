// A story as a file and back: plain text for the command line, Markdown for readers, JSON with everything.

import { readTag } from "./lanes.js";
import { sign, unsign } from "./moods.js";
import { noted } from "./people.js";
import { split } from "./split.js";
import { blank, FEWEST, LONGEST, MOST, empty, restored, stored } from "./state.js";

const MARK = "fabula-story";

/** A sentence a line, `_` where one is missing: what `fabula fill --file` reads. */
export const toText = (doc) => doc.lines.map((line) => line.text.trim() || "_").join("\n") + "\n";

const escaped = (text) => text.replace(/[\\`*_<>[\]#&|]/g, "\\$&").replace(/^(?:(\d+)(?=[.)])|(?=[-+=~]))/, "$1\\");
const unescaped = (text) => text.replace(/\\([!-/:-@[-`{-~])/g, "$1");

// What stands in a comment of HTML: two hyphens in a row would end it.
const hidden = (text) => text.replaceAll("&", "&amp;").replace(/[<>|]/g, (sign) => `&#${sign.codePointAt(0)};`).replaceAll("--", "-&#45;");
const shown = (text) => text.replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(code)).replaceAll("&amp;", "&");
const COMMENT = /^<!-- fabula\n([^]*?)^-->/m;

/**
 * Prose to be read: a title and a paragraph, whose sentences are a line of the file each. What no reader wants stands in
 * a comment at the end: which lines are blank, the arc, the cast, the notes.
 */
export function toMarkdown(doc, title) {
  const lines = doc.lines.flatMap((line) => (line.text.trim() ? [escaped(line.text.trim())] : []));
  const blanks = doc.lines.flatMap((line, i) => (line.text.trim() ? [] : [i + 1]));
  const known = [
    ...(blanks.length ? [`blank: ${blanks.join(" ")}`] : []),
    ...(doc.lines.some((line) => line.tag !== null) ? [`arc: ${doc.lines.map((line) => sign(line.tag)).join(" ")}`] : []),
    ...doc.people.map(({ name, pronoun, about }) => `person: ${[name, pronoun ?? "", about].map(hidden).join(" | ")}`),
    ...noted(doc).map((note) => `note: ${hidden(note)}`),
  ];
  return [`# ${escaped(title)}`, "", ...lines, "", "<!-- fabula", ...known, "-->", ""].join("\n");
}

export const toJson = (doc, title) => JSON.stringify({ format: MARK, version: 1, title, state: stored(doc) }, null, 1) + "\n";

const counted = (lines) => {
  const long = lines.findIndex((line) => line.text.length > LONGEST);
  if (long >= 0) throw new Error(`line ${long + 1} has ${lines[long].text.length.toLocaleString("en")} characters; the most is ${LONGEST.toLocaleString("en")}`);
  if (lines.length > MOST) throw new Error(`it has ${lines.length} sentences; a story has at most ${MOST}`);
  while (lines.length < FEWEST) lines.push(blank());
  return { ...empty(), lines };
};

export function fromText(text) {
  const sentences = split(text);
  if (!sentences.some(Boolean)) throw new Error("there are no sentences in it");
  return { title: "", doc: counted(sentences.map((sentence) => ({ ...blank(), text: sentence }))) };
}

export function fromMarkdown(text, labels, factors = null) {
  const plain = text.replaceAll("\r", "");
  const own = COMMENT.exec(plain);
  const rows = plain.replace(COMMENT, "").split("\n");
  const title = unescaped(rows.find((row) => /^# /.test(row))?.slice(2).trim() ?? "");
  const known = (key) => (own?.[1] ?? "").split("\n").flatMap((row) => (row.startsWith(`${key}: `) ? [row.slice(key.length + 2)] : []));
  const sentences = own ? rows.filter((row) => row.trim() && !/^#/.test(row)).map((row) => unescaped(row.trim())) : foreign(rows);
  for (const place of (known("blank")[0] ?? "").split(" ").filter(Boolean)) sentences.splice(Number(place) - 1, 0, "");
  if (!sentences.some(Boolean)) throw new Error("there are no sentences in it");
  const arc = known("arc")[0] ?? rows.find((row) => /^Arc:/.test(row))?.slice(4) ?? "";
  const tags = arc.trim().split(/\s+/).map((word) => unsign(word, labels) ?? readTag(word, factors));
  const doc = counted(sentences.map((sentence, i) => ({ ...blank(), text: sentence, tag: tags[i] ?? null })));
  const people = known("person").map((row) => row.split(" | ").map(shown)).map(([name, pronoun, about]) => ({ name, pronoun: pronoun || null, about: about ?? "" }));
  return { title, doc: restored({ ...doc, people, notes: known("note").map(shown).join("\n") }) };
}

/** The sentences of a text that is not of this page: a list, with `_` where one is missing, or prose. */
function foreign(rows) {
  const items = rows.flatMap((row) => /^\s*(?:\d+[.)]|[-*+])\s+(.*)$/.exec(row)?.[1] ?? []);
  if (items.length) return items.map((item) => (item.trim() === "_" ? "" : unescaped(item.trim())));
  return split(unescaped(rows.filter((row) => !/^#|^Arc:/.test(row)).join("\n")));
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
