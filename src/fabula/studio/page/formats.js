// A story as a file and back: plain text and Markdown for people and the command line, JSON with everything.

import { readTag } from "./lanes.js";
import { sign, unsign } from "./moods.js";
import { split } from "./split.js";
import { blank, FEWEST, LONGEST, MOST, empty, restored, stored } from "./state.js";

const MARK = "fabula-story";

/** A sentence a line, `_` where one is missing: what `fabula fill --file` reads. */
export const toText = (doc) => doc.lines.map((line) => line.text.trim() || "_").join("\n") + "\n";

const escaped = (text) => text.replace(/[\\`*_<>[\]#&|]/g, "\\$&");
const unescaped = (text) => text.replace(/\\([\\`*_<>[\]#&|])/g, "$1");

export function toMarkdown(doc, title) {
  const lines = doc.lines.map((line, i) => `${i + 1}. ${escaped(line.text.trim()) || "_"}`);
  const arc = doc.lines.some((line) => line.tag !== null) ? ["", `Arc: ${doc.lines.map((line) => sign(line.tag)).join(" ")}`] : [];
  return [`# ${escaped(title)}`, "", ...lines, ...arc, ""].join("\n");
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
  const rows = text.replaceAll("\r", "").split("\n");
  const title = unescaped(rows.find((row) => /^# /.test(row))?.slice(2).trim() ?? "");
  const items = rows.flatMap((row) => /^\s*(?:\d+[.)]|[-*+])\s+(.*)$/.exec(row)?.[1] ?? []);
  const prose = rows.filter((row) => !/^#|^Arc:/.test(row)).join("\n");
  const sentences = items.length ? items.map((item) => (item.trim() === "_" ? "" : unescaped(item.trim()))) : split(unescaped(prose));
  if (!sentences.some(Boolean)) throw new Error("there are no sentences in it");
  const signs = rows.find((row) => /^Arc:/.test(row))?.slice(4).trim().split(/\s+/) ?? [];
  const tags = signs.map((word) => unsign(word, labels) ?? readTag(word, factors));
  return { title, doc: counted(sentences.map((sentence, i) => ({ ...blank(), text: sentence, tag: tags[i] ?? null }))) };
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
