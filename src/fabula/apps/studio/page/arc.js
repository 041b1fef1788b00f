// The arc beside the text: it runs down the page as the story does, low moods left, high moods right. Every sentence has a
// point beside its first word, to drag or to steer by keyboard; the band around free points is what the model expects.

import { $, h, keep, s, tell } from "./dom.js";
import { focus } from "./editor.js";
import { lanesOf, partOf, withPart } from "./lanes.js";
import { menu } from "./menu.js";
import { hue, place, said } from "./moods.js";
import { bend } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

/** Where the points lie: from the sides as a share of the width; from each other in pixels, at least. */
const PAD = 0.14;
const APART = 26;
const SMALL = 4;

const knobs = new Map();
/** What a hand is drawing now: {tags: {id: label}, id, share}; it becomes the story's when the hand lets go. */
let drag = null;

const x = (share) => PAD + (1 - 2 * PAD) * share;
const nearest = (share, labels) => labels[Math.round(Math.min(1, Math.max(0, share)) * (labels.length - 1))];
const count = () => lanesOf(store.ui).length;
const whole = (line, label) => withPart(line.tag, 0, count(), label);

export function start() {
  new ResizeObserver(() => render(store.doc, store.ui)).observe($("text"));
  $("arc").addEventListener("pointerdown", onTrack);
  // A finger that scrolls is no tap.
  $("arc").addEventListener("click", (event) => event.pointerType === "touch" && !event.target.closest(".knob, .chip") && (strike(event), commit()));
  subscribe(render);
}

/** The mean place and spread of a point, and whether it is fixed. */
export function pointOf(line, belief, labels) {
  if (line.tag !== null && labels.includes(line.tag)) return { at: place(line.tag, labels), spread: 0, fixed: true };
  if (!belief) return { at: 0.5, spread: null, fixed: false };
  let at = 0;
  let square = 0;
  for (const label of labels) {
    at += (belief[label] ?? 0) * place(label, labels);
    square += (belief[label] ?? 0) * place(label, labels) ** 2;
  }
  return { at, spread: Math.sqrt(Math.max(0, square - at * at)), fixed: false };
}

/** The moods of the lines, with what is being drawn. */
const moods = (doc) => doc.lines.map((line) => ({ id: line.id, tag: drag?.tags && line.id in drag.tags ? drag.tags[line.id] : partOf(line.tag, 0, count()) }));

/** How far down every point lies: beside the first row of its sentence, or as near below it as the points before allow. */
function heights(doc) {
  const top = $("arc").getBoundingClientRect().top;
  const elements = document.querySelectorAll("#story-text .sentence"); // in the order of the lines
  let last = -Infinity;
  return doc.lines.map((_, i) => {
    // What is previewed stands behind the sentence, which is hidden then.
    const row = elements[i]?.getClientRects()[0] ?? elements[i]?.nextElementSibling?.getClientRects()[0];
    last = Math.max(row ? row.top + Math.min(row.height, 34) / 2 - top : 0, last + APART);
    return last;
  });
}

function render(doc, ui) {
  const { labels } = ui;
  const box = $("arc");
  const down = heights(doc);
  const lines = moods(doc);
  const kept = new Set(doc.lines.map(({ id }) => id));
  for (const [id, { knob, chip }] of knobs) if (!kept.has(id)) (knob.remove(), chip.remove(), knobs.delete(id));
  lines.forEach((line, i) => {
    if (!knobs.has(line.id)) knobs.set(line.id, make(line.id));
    const { knob, chip } = knobs.get(line.id);
    if (box.children[2 * i + 1] !== knob) box.insertBefore(knob, box.children[2 * i + 1] ?? null);
    if (knob.nextSibling !== chip) knob.after(chip);
    patch(knob, line, i, labels, ui.posterior?.[i], down[i]);
    patchChip(chip, doc.lines[i], i, ui, down[i]);
  });
  box.style.minHeight = `${(down.at(-1) ?? 0) + APART}px`;
  tell($("sheet"), { lanes: lanesOf(ui).length > 1 ? "many" : "one" });
  curve(lines, ui, down);
}

function make(id) {
  const line = () => store.doc.lines.find((one) => one.id === id);
  const knob = h(
    "div",
    {
      class: "knob",
      role: "slider",
      tabIndex: -1,
      "aria-orientation": "horizontal",
      onkeydown: (event) => onKey(event, line()),
      onpointerdown: (event) => onGrab(event, line()),
      onpointerenter: () => show({ over: id }),
      onpointerleave: () => show({ over: null }),
      onfocus: () => show({ over: id }),
      onblur: () => show({ over: null }),
      ondblclick: () => focus(id),
    },
    h("span", { class: "tip", "aria-hidden": "true" }),
  );
  const chip = menu(h("button", { type: "button", class: "chip quiet", tabIndex: -1, onpointerdown: (event) => event.stopPropagation() }), () => picks(line(), 1));
  return { knob, chip };
}

/** The labels of the lanes from `first` on, to be chosen for a line. */
export function picks(line, first = 0, last = Infinity) {
  return lanesOf(store.ui).flatMap(({ name, title, labels }, lane, all) => {
    if (lane < first || lane > last) return [];
    const now = partOf(line.tag, lane, all.length);
    const i = store.doc.lines.indexOf(line);
    const belief = lane ? store.ui.beliefs?.[i]?.[name] : store.ui.posterior?.[i];
    const pick = (label) => ({
      label: `${title}: ${said(label)}`,
      hint: label !== null && belief ? `${Math.round(100 * (belief[label] ?? 0))} %` : null,
      current: now === label,
      act: () => change(bend, { [line.id]: withPart(line.tag, lane, all.length, label) }),
    });
    return [pick(null), ...labels.map(pick)];
  });
}

function patchChip(chip, line, i, ui, y) {
  const lanes = lanesOf(ui);
  const labels = lanes.slice(1).flatMap((_, at) => partOf(line.tag, at + 1, lanes.length) ?? []);
  const names = lanes.slice(1).map(({ title }) => title.toLowerCase()).join(" and ");
  keep(chip, { hidden: lanes.length < 2, textContent: labels.length ? labels.map(said).join(", ") : "+", "aria-label": `${labels.length ? `${labels.map(said).join(", ")}: ` : ""}${names} of sentence ${i + 1}`, title: `Choose ${names}` });
  tell(chip, { set: labels.length ? "yes" : "no" });
  chip.style.top = `${y}px`;
}

function patch(knob, line, i, labels, belief, y) {
  const point = pointOf(line, belief, labels);
  knob.style.left = `${x(drag?.id === line.id ? drag.share : point.at) * 100}%`;
  knob.style.top = `${y}px`;
  tell(knob, { fixed: point.fixed ? "yes" : "no", hue: hue(line.tag, labels), dragged: drag?.id === line.id ? "yes" : "no", over: store.ui.over === line.id || store.ui.at === line.id ? "yes" : "no" });
  const now = line.tag !== null ? labels.indexOf(line.tag) : labels.indexOf(likeliest(belief, labels));
  const text = point.fixed ? `${said(line.tag)}, fixed` : `free${expected(belief, labels)}`;
  // One stop of the Tab key for all points: that of the sentence at the caret.
  const stop = line.id === (store.ui.at ?? store.doc.lines[0].id) || document.activeElement === knob;
  keep(knob, { tabIndex: stop ? 0 : -1, "aria-label": `Mood of sentence ${i + 1}`, "aria-valuemin": "0", "aria-valuemax": String(labels.length - 1), "aria-valuenow": String(Math.max(0, now)), "aria-valuetext": text });
  keep(knob.firstChild, { textContent: point.fixed ? said(line.tag) : "free" });
}

const likeliest = (belief, labels) =>
  belief ? labels.reduce((best, label) => ((belief[label] ?? 0) > (belief[best] ?? 0) ? label : best)) : labels[labels.length >> 1];

function expected(belief, labels) {
  if (!belief) return "";
  const ranked = [...labels].sort((a, b) => (belief[b] ?? 0) - (belief[a] ?? 0));
  return `; the model expects ${ranked.map((label) => `${said(label)} ${Math.round(100 * (belief[label] ?? 0))} %`).join(", ")}`;
}

const beliefOf = (line) => store.ui.posterior?.[store.doc.lines.indexOf(line)];

function onKey(event, line) {
  if (event.altKey || event.ctrlKey || event.metaKey) return undefined;
  const { labels } = store.ui;
  const mood = partOf(line.tag, 0, count());
  const base = likeliest(beliefOf(line), labels);
  const at = labels.indexOf(mood ?? base);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const along = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (along) return event.preventDefault(), knobs.get(store.doc.lines[store.doc.lines.indexOf(line) + along]?.id)?.knob.focus();
  let tag;
  if (step) tag = labels[Math.max(0, Math.min(labels.length - 1, at + step))];
  else if (event.key === "Home") tag = labels[0];
  else if (event.key === "End") tag = labels.at(-1);
  else if (event.key === " " || event.key === "Enter") tag = mood === null ? base : null;
  else if (event.key === "Delete" || event.key === "Backspace") tag = null;
  else return undefined;
  event.preventDefault();
  return change(bend, { [line.id]: whole(line, tag) });
}

/** What was drawn becomes the story's, in one step of undo. */
function commit() {
  const drawn = drag?.tags ?? {};
  drag = null;
  const lines = store.doc.lines.filter((line) => line.id in drawn);
  if (!change(bend, Object.fromEntries(lines.map((line) => [line.id, whole(line, drawn[line.id])])))) render(store.doc, store.ui);
}

const shareAt = (clientX, box) => Math.min(1, Math.max(0, ((clientX - box.left) / box.width - PAD) / (1 - 2 * PAD)));

/** A point is dragged along its row; without a move it is a click, which fixes or frees it. */
function onGrab(event, line) {
  if (event.button !== 0) return;
  event.preventDefault();
  event.stopPropagation();
  const knob = event.currentTarget;
  knob.focus({ preventScroll: true });
  knob.setPointerCapture(event.pointerId);
  const from = event.clientX;
  const box = $("arc").getBoundingClientRect();
  const { labels } = store.ui;
  const onMove = (move) => {
    if (!drag && Math.abs(move.clientX - from) < SMALL) return;
    const share = shareAt(move.clientX, box);
    drag = { id: line.id, share, tags: { [line.id]: nearest(share, labels) } };
    render(store.doc, store.ui);
  };
  const onEnd = () => {
    knob.removeEventListener("pointermove", onMove);
    drag ??= { tags: { [line.id]: partOf(line.tag, 0, count()) === null ? likeliest(beliefOf(line), labels) : null } };
    commit();
  };
  knob.addEventListener("pointermove", onMove);
  knob.addEventListener("lostpointercapture", onEnd, { once: true });
}

/** The sentence beside a pointer has the mood that it points at. */
function strike({ clientX, clientY }) {
  const box = $("arc").getBoundingClientRect();
  const down = heights(store.doc);
  const y = clientY - box.top;
  const at = down.reduce((best, height, i) => (Math.abs(height - y) < Math.abs(down[best] - y) ? i : best), 0);
  drag = { tags: { ...drag?.tags, [store.doc.lines[at].id]: nearest(shareAt(clientX, box), store.ui.labels) } };
  render(store.doc, store.ui);
}

/** A mouse drawn over the column from beside a point sets every sentence that it passes: an arc in one stroke. */
function onTrack(event) {
  if (event.button !== 0 || event.pointerType === "touch") return;
  strike(event);
  $("arc").setPointerCapture(event.pointerId);
  $("arc").addEventListener("pointermove", strike);
  $("arc").addEventListener("lostpointercapture", () => ($("arc").removeEventListener("pointermove", strike), commit()), { once: true });
}

/** The smooth line through points that run down the page. */
export function through(points) {
  return points
    .map(([px, py], i) => {
      if (!i) return `M${px.toFixed(1)},${py.toFixed(1)}`;
      const [ox, oy] = points[i - 1];
      const middle = ((oy + py) / 2).toFixed(1);
      return `C${ox.toFixed(1)},${middle} ${px.toFixed(1)},${middle} ${px.toFixed(1)},${py.toFixed(1)}`;
    })
    .join("");
}

/** Curve, band and bubbles behind the points; the moods of a candidate that is looked at. */
function curve(lines, { labels, posterior, preview }, down) {
  const svg = $("curve");
  const { width, height } = $("arc").getBoundingClientRect();
  if (!width) return;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.width = `${width}px`;
  svg.style.height = `${height}px`;
  const points = lines.map((line, i) => {
    const point = pointOf(line, posterior?.[i], labels);
    return { ...point, x: x(drag?.id === line.id ? drag.share : point.at) * width, y: down[i] };
  });
  const ticks = labels.map((label) => x(place(label, labels)) * width);
  const parts = ticks.map((at) => s("path", { class: "tick", d: `M${at},0V${height}` }));
  if (points.some((point) => point.spread !== null && !point.fixed)) {
    const wide = (point) => Math.max(2, (point.spread ?? 0) * (1 - 2 * PAD) * width);
    const left = points.map((point) => [Math.max(x(0) * width - 2, point.x - wide(point)), point.y]);
    const right = points.map((point) => [Math.min(x(1) * width + 2, point.x + wide(point)), point.y]).reverse();
    parts.push(s("path", { class: "band", d: `${through(left)}L${through(right).slice(1)}Z` }));
  }
  points.forEach((point, i) => {
    const belief = posterior?.[i];
    if (point.fixed || !belief) return;
    for (const label of labels) {
      const r = Math.sqrt(belief[label] ?? 0) * 7;
      if (r > 1) parts.push(s("circle", { class: "bubble", "data-hue": hue(label, labels), cx: x(place(label, labels)) * width, cy: point.y, r }));
    }
  });
  parts.push(s("path", { class: "line", d: through(points.map((point) => [point.x, point.y])) }));
  const ghost = lines.map((line) => preview?.tags?.[line.id] ?? line.tag);
  if (preview?.tags && ghost.every((tag) => labels.includes(tag))) parts.push(s("path", { class: "ghost", d: through(points.map((point, i) => [x(place(ghost[i], labels)) * width, point.y])) }));
  svg.replaceChildren(...parts);
}

/** The names over the column. */
export function heads() {
  subscribe((_, { labels }) => {
    const head = $("labels");
    if (head.dataset.of === labels.join()) return;
    head.dataset.of = labels.join();
    head.replaceChildren(
      ...labels.map((label) => {
        const name = h("span", { "data-hue": hue(label, labels) }, said(label));
        name.style.left = `${x(place(label, labels)) * 100}%`;
        return name;
      }),
    );
  });
}
