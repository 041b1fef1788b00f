// The arc beside the lines: it runs down the page as the story does, low moods left, high moods right. Every line has a
// point to drag or to steer by keyboard; the band around free points is what the model expects there.

import { $, h, keep, s, tell } from "./dom.js";
import { hint, isListed, patchHint } from "./hints.js";
import { cells } from "./lines.js";
import { inView } from "./lanes.js";
import { hue, place, said } from "./moods.js";
import { bend, pause } from "./state.js";
import { change, store, subscribe } from "./store.js";

/** Where the points lie in a cell: from the top in pixels (the first line of text), from the sides as a share. */
const TOP = 25;
const PAD = 0.14;
const SMALL = 4;

const knobs = [];
let drag = null;

const x = (share) => PAD + (1 - 2 * PAD) * share;
const nearest = (share, labels) => labels[Math.round(Math.min(1, Math.max(0, share)) * (labels.length - 1))];

export function start() {
  new ResizeObserver(() => curve(store.doc, store.ui)).observe($("lines"));
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

function render(doc, ui) {
  const view = inView(doc, ui);
  while (knobs.length > doc.lines.length) knobs.pop();
  tell($("lines"), { listed: isListed(view.labels) ? "yes" : "no" });
  cells().forEach((cell, i) => {
    if (knobs[i]?.parentElement !== cell) {
      knobs[i] = knob(i);
      cell.replaceChildren(h("div", { class: "ticks", "aria-hidden": "true" }), knobs[i], hint(i));
      cell.addEventListener("pointerdown", (event) => onTrack(event, i));
    }
    patch(knobs[i], view.lines[i], i, view);
    patchHint(cell.lastChild, view.lines[i], i, view);
    ticks(cell.firstChild, view.labels);
  });
  curve(doc, ui);
}

function ticks(element, labels) {
  if (element.dataset.of === labels.join()) return;
  element.dataset.of = labels.join();
  element.replaceChildren(
    ...labels.map((label) => {
      const tick = h("span", { class: "tick" });
      tick.style.left = `${x(place(label, labels)) * 100}%`;
      return tick;
    }),
  );
}

function knob(i) {
  const tip = h("span", { class: "tip", "aria-hidden": "true" });
  return h(
    "div",
    {
      class: "knob",
      role: "slider",
      tabIndex: 0,
      "aria-orientation": "horizontal",
      "aria-label": `Mood of sentence ${i + 1}`,
      onkeydown: (event) => onKey(event, i),
      onblur: () => change(pause),
      onpointerdown: (event) => onGrab(event, i),
    },
    tip,
  );
}

function patch(element, line, i, { labels, posterior }) {
  const belief = posterior?.[i];
  const point = pointOf(line, belief, labels);
  const moved = drag?.line === i ? drag.share : point.at;
  element.style.left = `${x(moved) * 100}%`;
  tell(element, { fixed: point.fixed ? "yes" : "no", hue: hue(line.tag, labels), dragged: drag?.line === i ? "yes" : "no" });
  const now = line.tag !== null ? labels.indexOf(line.tag) : labels.indexOf(likeliest(belief, labels));
  const text = point.fixed ? `${said(line.tag)}, fixed` : `free${expected(belief, labels)}`;
  keep(element, { "aria-valuemin": 0, "aria-valuemax": labels.length - 1, "aria-valuenow": Math.max(0, now), "aria-valuetext": text });
  keep(element.firstChild, { textContent: point.fixed ? said(line.tag) : "free" });
}

const likeliest = (belief, labels) =>
  belief ? labels.reduce((best, label) => ((belief[label] ?? 0) > (belief[best] ?? 0) ? label : best)) : labels[labels.length >> 1];

function expected(belief, labels) {
  if (!belief) return "";
  const told = [...labels].sort((a, b) => (belief[b] ?? 0) - (belief[a] ?? 0));
  return `; the model expects ${told.map((label) => `${said(label)} ${Math.round(100 * (belief[label] ?? 0))} %`).join(", ")}`;
}

function onKey(event, i) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const { labels, lines, posterior, whole } = inView(store.doc, store.ui);
  const line = lines[i];
  const base = likeliest(posterior?.[i], labels);
  const at = labels.indexOf(line.tag ?? base);
  const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
  let tag;
  if (step) tag = labels[Math.max(0, Math.min(labels.length - 1, at + step))];
  else if (event.key === "Home") tag = labels[0];
  else if (event.key === "End") tag = labels.at(-1);
  else if (event.key === " " || event.key === "Enter") tag = line.tag === null ? base : null;
  else if (event.key === "Delete" || event.key === "Backspace") tag = null;
  else return;
  event.preventDefault();
  change(bend, i, whole(i, tag), `bend ${i}`);
}

/** A point is dragged along its line; without a move it is a click, which fixes or frees it. */
function onGrab(event, i) {
  if (event.button !== 0) return;
  event.preventDefault();
  event.stopPropagation();
  const element = event.currentTarget;
  element.focus({ preventScroll: true });
  element.setPointerCapture(event.pointerId);
  const from = event.clientX;
  const box = element.parentElement.getBoundingClientRect();
  const burst = `drag ${i} ${event.timeStamp}`;
  let moved = false;
  const share = (clientX) => Math.min(1, Math.max(0, ((clientX - box.left) / box.width - PAD) / (1 - 2 * PAD)));
  const onMove = (move) => {
    if (!moved && Math.abs(move.clientX - from) < SMALL) return;
    moved = true;
    drag = { line: i, share: share(move.clientX) };
    // The point follows the hand even where the label stays the same.
    const { labels, whole } = inView(store.doc, store.ui);
    if (!change(bend, i, whole(i, nearest(drag.share, labels)), burst)) render(store.doc, store.ui);
  };
  const onEnd = () => {
    element.removeEventListener("pointermove", onMove);
    drag = null;
    if (!moved) {
      const { labels, lines, posterior, whole } = inView(store.doc, store.ui);
      change(bend, i, whole(i, lines[i].tag === null ? likeliest(posterior?.[i], labels) : null));
    } else change(pause);
    render(store.doc, store.ui);
  };
  element.addEventListener("pointermove", onMove);
  element.addEventListener("lostpointercapture", onEnd, { once: true });
}

/** A mouse drawn over the column from beside a point sets every line that it passes: an arc in one stroke. */
function onTrack(event, i) {
  if (event.button !== 0 || isListed(inView(store.doc, store.ui).labels)) return;
  const burst = `stroke ${event.timeStamp}`;
  const set = ({ clientX, clientY }, only = null) => {
    const all = cells();
    const line = only ?? all.findIndex((cell) => {
      const box = cell.getBoundingClientRect();
      return clientY >= box.top && clientY < box.bottom;
    });
    if (line < 0) return;
    const box = all[line].getBoundingClientRect();
    const share = ((clientX - box.left) / box.width - PAD) / (1 - 2 * PAD);
    const { labels, whole } = inView(store.doc, store.ui);
    change(bend, line, whole(line, nearest(share, labels)), burst);
  };
  set(event, i);
  if (event.pointerType === "touch") return;
  const cell = event.currentTarget;
  cell.setPointerCapture(event.pointerId);
  const onMove = (move) => set(move);
  cell.addEventListener("pointermove", onMove);
  cell.addEventListener("lostpointercapture", () => {
    cell.removeEventListener("pointermove", onMove);
    change(pause);
  }, { once: true });
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

/** Curve, band and bubbles behind the points. */
function curve(doc, ui) {
  const svg = $("curve");
  const all = cells();
  if (!all.length) return;
  const list = $("lines").getBoundingClientRect();
  const width = all[0].getBoundingClientRect().width;
  if (!width) return;
  svg.setAttribute("viewBox", `0 0 ${width} ${list.height}`);
  svg.style.width = `${width}px`;
  svg.style.height = `${list.height}px`;
  const { labels, lines, posterior, ghost } = inView(doc, ui);
  if (isListed(labels)) return svg.replaceChildren();
  const points = lines.map((line, i) => {
    const point = pointOf(line, posterior?.[i], labels);
    const at = drag?.line === i ? drag.share : point.at;
    return { ...point, x: x(at) * width, y: all[i].getBoundingClientRect().top - list.top + TOP };
  });
  const parts = [];
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
  if (ghost?.length === points.length && ghost.every((tag) => labels.includes(tag)))
    parts.push(s("path", { class: "ghost", d: through(points.map((point, i) => [x(place(ghost[i], labels)) * width, point.y])) }));
  svg.replaceChildren(...parts);
}

/** The names over the column. */
export function heads() {
  subscribe((doc, ui) => {
    const { labels } = inView(doc, ui);
    const head = $("labels");
    if (head.dataset.of === labels.join()) return;
    head.dataset.of = labels.join();
    head.replaceChildren(
      ...(isListed(labels) ? [] : labels).map((label) => {
        const name = h("span", { "data-hue": hue(label, labels) }, said(label));
        name.style.left = `${x(place(label, labels)) * 100}%`;
        return name;
      }),
    );
  });
}
