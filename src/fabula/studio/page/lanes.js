// A model may say several things of a sentence, such as its sentiment and its emotion: each is a lane of the arc, and the arc
// shows one at a time. A tag of several lanes is written "positive/joy", with "?" where a lane is free.

import { $, h } from "./dom.js";
import { FREE } from "./moods.js";
import { show, subscribe } from "./store.js";

const JOINT = "/";

/** The labels of every lane. */
export function lanesOf(labels) {
  const parts = labels.map((label) => label.split(JOINT));
  const count = parts[0]?.length ?? 1;
  if (count < 2 || parts.some((part) => part.length !== count)) return [labels];
  return Array.from({ length: count }, (_, lane) => [...new Set(parts.map((part) => part[lane]))]);
}

/** What a tag says in one of `count` lanes; null where it is free there. */
export function partOf(tag, lane, count) {
  if (tag === null || count < 2) return tag;
  const part = tag.split(JOINT)[lane];
  return part === undefined || part === FREE ? null : part;
}

/** The tag with another label in one of `count` lanes; null where it is free in all. */
export function withPart(tag, lane, count, label) {
  if (count < 2) return label;
  const parts = Array.from({ length: count }, (_, at) => (at === lane ? label : partOf(tag, at, count)));
  return parts.every((part) => part === null) ? null : parts.map((part) => part ?? FREE).join(JOINT);
}

/** Of what is believed of whole tags, the share of each label of one lane. */
function marginal(belief, lane, count) {
  if (!belief || count < 2) return belief;
  const shares = {};
  for (const [tag, share] of Object.entries(belief)) {
    const part = tag.split(JOINT)[lane];
    shares[part] = (shares[part] ?? 0) + share;
  }
  return shares;
}

/** What the model calls its lanes. */
const namesOf = (ui) => ui.models.find((one) => one.labels?.join() === ui.labels.join())?.factors?.map((factor) => factor.name) ?? [];

/** The arc in the lane that is shown: its labels, points, beliefs, and the candidate that is looked at. */
export function inView(doc, ui) {
  const lanes = lanesOf(ui.labels);
  const lane = Math.min(ui.lane, lanes.length - 1);
  const of = (tag) => partOf(tag, lane, lanes.length);
  return {
    labels: lanes[lane],
    name: namesOf(ui)[lane] ?? "Mood",
    lines: doc.lines.map((line) => (lanes.length < 2 ? line : { ...line, tag: of(line.tag) })),
    posterior: ui.posterior?.map((belief) => marginal(belief, lane, lanes.length)) ?? null,
    ghost: ui.preview?.tags?.map(of),
    part: of,
    /** A line's whole tag with this label in the lane that is shown. */
    whole: (i, label) => withPart(doc.lines[i].tag, lane, lanes.length, label),
  };
}

/** Buttons to choose the lane, where there are several; their names are the model's. */
export function start() {
  subscribe((_, ui) => {
    const lanes = lanesOf(ui.labels);
    const names = namesOf(ui);
    const box = $("lanes");
    const key = JSON.stringify([lanes.length, names, ui.lane]);
    if (box.dataset.of === key) return;
    box.dataset.of = key;
    box.hidden = lanes.length < 2;
    const had = [...box.children].indexOf(document.activeElement);
    box.replaceChildren(
      ...lanes.map((_, lane) => h("button", { type: "button", class: "quiet", "aria-pressed": String(lane === ui.lane), onclick: () => show({ lane }) }, names[lane] ?? `Lane ${lane + 1}`)),
    );
    box.children[had]?.focus();
  });
}
