// A model may say several things of a sentence: its mood, its emotion, its action. Each is a lane. The mood is the arc; the
// others are chosen from a list. A tag that is free in all lanes but the first is its label there; any other tag of several
// lanes is written "positive/joy", with "?" where a lane is free.

import { FREE } from "./moods.js";

const JOINT = "/";
const NAMES = { sentiment: "Mood", emotion: "Emotion", verb: "Action" };

/** Every lane's name in the answers, its name for a writer, and its labels. */
export const lanesOf = (ui) => (ui.factors ?? [{ name: "sentiment", labels: ui.labels }]).map(({ name, labels }) => ({ name, title: NAMES[name] ?? name, labels }));

/** What a tag says in one of `count` lanes; null where it is free there. */
export function partOf(tag, lane, count) {
  if (tag === null || count < 2) return tag;
  const part = tag.split(JOINT)[lane];
  return part === undefined || part === FREE ? null : part;
}

/** A whole tag as it is written, if every lane knows its part; else null. */
export function readTag(word, factors) {
  const parts = word.split(JOINT);
  const known = parts.length === factors?.length && parts.every((part, lane) => part === FREE || factors[lane].labels.includes(part));
  return known && parts.some((part) => part !== FREE) ? word : null;
}

/** The tag with another label in one of `count` lanes; null where it is free in all. */
export function withPart(tag, lane, count, label) {
  if (count < 2) return label;
  const parts = Array.from({ length: count }, (_, at) => (at === lane ? label : partOf(tag, at, count)));
  if (parts.slice(1).every((part) => part === null)) return parts[0];
  return parts.map((part) => part ?? FREE).join(JOINT);
}
