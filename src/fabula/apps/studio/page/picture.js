// The arc as a picture, drawn from left to right with the sentences below. It carries its story inside, so that it can be
// opened again.

import { through } from "./arc.js";
import { s } from "./dom.js";
import { toJson } from "./formats.js";
import { hue, place, said } from "./moods.js";

const WIDTH = 960;
const SIDE = 90;
const HIGH = 90;
const LOW = 290;
const LETTERS = 100;
const INK = { low: "#2f66b0", middle: "#5d6470", high: "#985706", free: "#8a8f98" };
const MARK = "fabula-story";

/** Words in lines of at most LETTERS letters. */
function wrap(text) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    if (lines.at(-1).length + word.length > LETTERS) lines.push("");
    lines[lines.length - 1] += `${lines.at(-1) ? " " : ""}${word}`;
  }
  return lines;
}

/** What XML cannot hold is left out. */
// eslint-disable-next-line no-control-regex
const printable = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "").toWellFormed?.() ?? text;

export function svg(doc, title, labels, posterior, pointOf) {
  const points = doc.lines.map((line, i) => {
    const point = pointOf(line, posterior?.[i], labels);
    const x = SIDE + (doc.lines.length > 1 ? i / (doc.lines.length - 1) : 0.5) * (WIDTH - SIDE - 50);
    return { ...point, x, y: LOW - point.at * (LOW - HIGH), tag: line.tag };
  });
  // `through` runs down; here the story runs to the right.
  const along = (list) => through(list.map(([x, y]) => [y, x])).replace(/(-?[\d.]+),(-?[\d.]+)/g, "$2,$1");
  const text = (x, y, size, fill, content, more = {}) =>
    s("text", { x, y, "font-size": size, fill, "font-family": "Georgia, 'DejaVu Serif', serif", ...more }, printable(content));
  const parts = [text(SIDE, 44, 24, "#1d2126", title || "Untitled", { "font-weight": "bold" })];
  for (const label of labels) {
    const y = LOW - place(label, labels) * (LOW - HIGH);
    parts.push(s("line", { x1: SIDE, x2: WIDTH - 50, y1: y, y2: y, stroke: "#dcdfe4" }));
    parts.push(text(SIDE - 16, y + 5, 15, INK[hue(label, labels)], said(label), { "text-anchor": "end" }));
  }
  const wide = (point) => (point.spread ?? 0) * (LOW - HIGH);
  if (points.some((point) => point.spread)) {
    const upper = points.map((point) => [point.x, Math.max(HIGH, point.y - wide(point))]);
    const lower = points.map((point) => [point.x, Math.min(LOW, point.y + wide(point))]).reverse();
    parts.push(s("path", { d: `${along(upper)}L${along(lower).slice(1)}Z`, fill: "#2f5d50", opacity: 0.12 }));
  }
  parts.push(s("path", { d: along(points.map((point) => [point.x, point.y])), fill: "none", stroke: "#2f5d50", "stroke-width": 3 }));
  let y = LOW + 84;
  points.forEach((point, i) => {
    const ink = INK[point.fixed ? hue(point.tag, labels) : "free"];
    parts.push(s("circle", { cx: point.x, cy: point.y, r: 7, fill: point.fixed ? ink : "#ffffff", stroke: ink, "stroke-width": 2.5 }));
    parts.push(text(point.x, LOW + 34, 14, "#5d6470", String(i + 1), { "text-anchor": "middle" }));
    parts.push(text(SIDE - 16, y, 15, "#5d6470", String(i + 1), { "text-anchor": "end" }));
    for (const row of wrap(doc.lines[i].text.trim() || "…")) {
      parts.push(text(SIDE, y, 17, "#1d2126", row));
      y += 25;
    }
    y += 6;
  });
  return s(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${WIDTH} ${y + 10}`, width: WIDTH, height: y + 10 },
    s("metadata", { id: MARK }, printable(toJson(doc, title))),
    s("rect", { width: "100%", height: "100%", fill: "#ffffff" }),
    parts,
  );
}

export const svgText = (element) => new XMLSerializer().serializeToString(element);

/** The story inside an SVG of ours, as JSON text. */
export function storyInSvg(text) {
  const read = new DOMParser().parseFromString(text, "image/svg+xml");
  const found = [...read.getElementsByTagName("metadata")].find((element) => element.id === MARK);
  if (!found) throw new Error("there is no story of the studio in this picture");
  return found.textContent;
}

/** The same as PNG, twice the size for sharp screens. */
export async function png(element, story) {
  const url = URL.createObjectURL(new Blob([svgText(element)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * image.width;
    canvas.height = 2 * image.height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    return withText(new Uint8Array(await blob.arrayBuffer()), story);
  } finally {
    URL.revokeObjectURL(url);
  }
}

// PNG is a signature and chunks: length, name, data, CRC. The story is an iTXt chunk (UTF-8 text) behind the first one.
const SIGNATURE = 8;
const HEADER_END = SIGNATURE + 25;

function crc(bytes) {
  let c = 0xffffffff;
  for (const byte of bytes) {
    c ^= byte;
    for (let bit = 0; bit < 8; bit += 1) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  }
  return ~c >>> 0;
}

function withText(image, story) {
  const data = new TextEncoder().encode(`iTXt${MARK}\0\0\0\0\0${story}`);
  const chunk = new Uint8Array(data.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, data.length - 4);
  chunk.set(data, 4);
  view.setUint32(chunk.length - 4, crc(data));
  return new Blob([image.slice(0, HEADER_END), chunk, image.slice(HEADER_END)], { type: "image/png" });
}

/** The story inside a PNG of ours, as JSON text. */
export function storyInPng(buffer) {
  const view = new DataView(buffer);
  const text = (from, length) => new TextDecoder().decode(new Uint8Array(buffer, from, length));
  for (let at = SIGNATURE; at + 12 <= buffer.byteLength; ) {
    const length = view.getUint32(at);
    if (at + 12 + length > buffer.byteLength) break;
    if (text(at + 4, 4) === "iTXt") {
      const [name, ...rest] = text(at + 8, length).split("\0");
      if (name === MARK) return rest.slice(4).join("\0");
    }
    at += 12 + length;
  }
  throw new Error("there is no story of the studio in this picture");
}
