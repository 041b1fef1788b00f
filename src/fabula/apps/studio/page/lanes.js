// A model may say several things of a sentence, such as its sentiment and its emotion: each is a lane of the arc, and the arc
// shows one at a time. A tag that is free in all lanes but the first is its label there; any other tag of several lanes is
// written "positive/joy", with "?" where a lane is free.

import { $, h } from "./dom.js";
import { FREE } from "./moods.js";
import { show, subscribe } from "./store.js";

const JOINT = "/";

/** Every lane's name and labels. */
const lanesOf = (ui) => ui.factors ?? [{ name: "Mood", labels: ui.labels }];

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

/** The arc in the lane that is shown: its labels, points, beliefs, and the candidate that is looked at. */
export function inView(doc, ui) {
  const lanes = lanesOf(ui);
  const lane = Math.min(ui.lane, lanes.length - 1);
  const { name, labels } = lanes[lane];
  /** What a sentence of a candidate has in this lane. */
  const has = (sentence) => (lane ? sentence.factors?.[name] : sentence.tag) ?? null;
  return {
    labels,
    name,
    first: lane === 0,
    lines: doc.lines.map((line) => (lanes.length < 2 ? line : { ...line, tag: partOf(line.tag, lane, lanes.length) })),
    posterior: lane ? (ui.beliefs?.map((belief) => belief[name]) ?? null) : ui.posterior,
    ghost: ui.preview?.told?.map(has),
    has,
    /** A line's whole tag with this label in the lane that is shown. */
    whole: (i, label) => withPart(doc.lines[i].tag, lane, lanes.length, label),
  };
}

/** What a line's tag asks for in the lanes that are not shown: [{lane, name, label}]. */
export function elsewhere(tag, ui) {
  const lanes = lanesOf(ui);
  const shown = Math.min(ui.lane, lanes.length - 1);
  return lanes.flatMap(({ name }, lane) => {
    const label = lane === shown ? null : partOf(tag, lane, lanes.length);
    return label === null ? [] : [{ lane, name, label }];
  });
}

/** Buttons to choose the lane, where there are several; their names are the model's. */
export function start() {
  subscribe((_, ui) => {
    const lanes = lanesOf(ui);
    const box = $("lanes");
    const key = JSON.stringify([lanes.map(({ name }) => name), ui.lane]);
    if (box.dataset.of === key) return;
    box.dataset.of = key;
    box.hidden = lanes.length < 2;
    const had = [...box.children].indexOf(document.activeElement);
    box.replaceChildren(
      ...lanes.map(({ name }, lane) => h("button", { type: "button", class: "quiet", "aria-pressed": String(lane === ui.lane), onclick: () => show({ lane }) }, name)),
    );
    box.children[had]?.focus();
  });
}
