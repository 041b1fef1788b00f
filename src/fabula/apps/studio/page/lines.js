// The story as a column of lines: one row each, kept and patched, so that a caret stays where it is.

import { compare } from "./diff.js";
import { $, h, icon, keep, pictured, tell } from "./dom.js";
import { elsewhere } from "./lanes.js";
import { close as closeMenu, menu } from "./menu.js";
import { note, say } from "./messages.js";
import { said as named } from "./moods.js";
import { split } from "./split.js";
import * as state from "./state.js";
import { change, show, store, subscribe } from "./store.js";

/** On a telephone a line has one menu, with everything in it. */
const NARROW = matchMedia("(max-width: 40rem)");
const GROWS = CSS.supports("field-sizing", "content");
const rows = [];
let act = {};

/** `actions`: regenerate(i) and why(i), which live elsewhere. */
export function start(actions) {
  act = actions;
  $("add").addEventListener("click", () => add(store.doc.lines.length));
  addEventListener("resize", () => rows.forEach(grow));
  subscribe(render);
}

export function focus(i) {
  const row = rows[Math.max(0, Math.min(i, rows.length - 1))];
  row?.text.focus();
}

function add(i) {
  if (change(state.insert, i)) focus(i);
  else note(`A story has at most ${state.MOST} lines.`);
}

function remove(i) {
  if (store.doc.lines[i].locked) note("This line is locked; unlock it first.");
  else if (change(state.remove, i)) focus(Math.min(i, store.doc.lines.length - 1));
  else note(`A story has at least ${state.FEWEST} lines.`);
}

function move(i, by) {
  if (!change(state.move, i, by)) return;
  focus(i + by);
  say(`Moved to place ${i + by + 1}.`);
}

function toggleLock(i) {
  const { locked, text } = store.doc.lines[i];
  if (!text.trim()) note("A blank line has nothing to lock.");
  else {
    change(state.lock, i, !locked);
    say(locked ? "Unlocked." : "Locked.");
  }
}

function toggleWrite(i) {
  const line = store.doc.lines[i];
  if (line.locked) note("This line is locked; unlock it first.");
  else if (!line.text.trim()) note("A blank line is always written.");
  else {
    change(state.mark, i, !line.write);
    say(line.write ? "Kept as it is." : "Fabula will write this line anew.");
  }
}

function clear(i) {
  if (store.doc.lines[i].locked) note("This line is locked; unlock it first.");
  else change(state.clear, i);
  focus(i);
}

function askOpening(i) {
  const line = store.doc.lines[i];
  if (!state.isWritten(line)) {
    if (line.locked) return note("This line is locked; unlock it first.");
    change(state.mark, i, true);
  }
  store.ui.opening.add(i);
  show({});
  rows[i].start.focus();
}

function onPaste(event, i) {
  const pasted = event.clipboardData.getData("text/plain");
  const sentences = split(pasted);
  const { value, selectionStart, selectionEnd } = event.target;
  const alone = sentences.length < 2;
  if (sentences.some((sentence) => sentence.length + (alone ? value.length - (selectionEnd - selectionStart) : 0) > state.LONGEST)) {
    event.preventDefault();
    return note(`A line has at most ${state.LONGEST.toLocaleString("en")} characters: this was not pasted.`);
  }
  if (alone || store.doc.lines[i].locked) return;
  event.preventDefault();
  const { doc, left } = state.paste(store.doc, i, sentences);
  change(() => doc);
  const told = `${sentences.length - left} sentences pasted, a line each.`;
  note(left ? `${told} ${left} more did not fit: a story has at most ${state.MOST} lines.` : told);
}

function onKey(event, i) {
  const { key, altKey, ctrlKey, metaKey, shiftKey, target } = event;
  const only = !altKey && !ctrlKey && !metaKey && !shiftKey;
  const last = store.doc.lines.length - 1;
  if (altKey && (key === "ArrowUp" || key === "ArrowDown")) move(i, key === "ArrowUp" ? -1 : 1);
  else if (key === "Enter" && only) i < last ? focus(i + 1) : add(i + 1);
  else if (key === "Enter" && altKey) add(i + 1);
  else if (key === "ArrowUp" && only && i > 0 && target.selectionEnd === 0) focus(i - 1);
  else if (key === "ArrowDown" && only && i < last && target.selectionStart === target.value.length) focus(i + 1);
  else if (key === "Enter" && shiftKey) return event.preventDefault();
  else return;
  event.preventDefault();
}

/** A line is drawn by its number to another place; a mark shows where it would come to stand. */
function onDrag(event, i) {
  if (event.button !== 0) return;
  event.preventDefault();
  const handle = event.currentTarget;
  handle.setPointerCapture(event.pointerId);
  let to = i;
  const onMove = ({ clientY }) => {
    const at = rows.findIndex(({ element }) => clientY < element.getBoundingClientRect().bottom);
    to = at < 0 ? rows.length - 1 : at;
    rows.forEach(({ element }, place) => tell(element, { drop: place !== to || to === i ? "no" : to < i ? "above" : "below" }));
  };
  const onEnd = ({ type }) => {
    handle.removeEventListener("pointermove", onMove);
    rows.forEach(({ element }) => tell(element, { drop: "no" }));
    if (type !== "pointercancel" && change(state.reorder, i, to)) say(`Moved to place ${to + 1}.`);
  };
  handle.addEventListener("pointermove", onMove);
  handle.addEventListener("pointerup", onEnd, { once: true });
  handle.addEventListener("pointercancel", onEnd, { once: true });
}

/** Left and right walk through the tools of a line; only one of them is a stop of the Tab key. */
function roving(tools) {
  const buttons = [...tools.querySelectorAll("button")];
  const stop = () => {
    const first = NARROW.matches ? buttons.length - 1 : 0;
    buttons.forEach((button, at) => (button.tabIndex = at === first ? 0 : -1));
  };
  stop();
  NARROW.addEventListener("change", stop);
  tools.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    buttons[(to + buttons.length) % buttons.length].focus();
  });
  tools.addEventListener("focusin", (event) => {
    for (const button of buttons) button.tabIndex = button === event.target ? 0 : -1;
  });
}

function makeRow(i) {
  const text = h("textarea", {
    rows: 1,
    spellcheck: true,
    autocomplete: "off",
    class: "text",
    maxLength: state.LONGEST,
    oninput: () => change(state.type, i, text.value.replace(/\s*\n\s*/g, " ")),
    onblur: () => change(state.pause),
    onpaste: (event) => onPaste(event, i),
    onkeydown: (event) => onKey(event, i),
  });
  const preview = h("p", { class: "preview", "aria-hidden": "true", hidden: true });
  const start = h("input", {
    class: "start",
    "aria-label": `Opening words of sentence ${i + 1}`,
    placeholder: "opening words",
    maxLength: 1000,
    autocomplete: "off",
    oninput: () => change(state.open, i, start.value),
    onblur: () => {
      change(state.pause);
      if (!start.value && store.ui.opening.delete(i)) show({});
    },
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.ctrlKey) event.preventDefault(), focus(i);
      if (event.key === "Escape") event.stopPropagation(), focus(i);
    },
  });
  const opening = h("label", { class: "opening", hidden: true }, h("span", {}, "begins with"), start);
  const asked = h("p", { class: "asked", hidden: true });
  const said = h("span", { class: "heard", id: `line-said-${i}` });
  const lock = pictured("unlock", "Lock", { onclick: () => toggleLock(i) });
  const write = pictured("pen", "Write this", { onclick: () => toggleWrite(i) });
  const again = pictured("again", "Regenerate this line", { onclick: () => act.regenerate(i) });
  const why = pictured("why", "Why this sentence", { onclick: () => store.doc.lines[i].text.trim() && act.why(i) });
  const more = menu(pictured("more", `More for line ${i + 1}`), () => entries(i));
  const tools = h("div", { class: "tools", role: "toolbar", "aria-label": `Line ${i + 1}` }, lock, write, again, why, more);
  roving(tools);
  const cell = h("div", { class: "arc-cell" });
  const panel = h("div", { class: "why", hidden: true });
  const element = h(
    "li",
    { class: "row" },
    cell,
    h("span", { class: "number", "aria-hidden": "true", title: "Draw to move this line", onpointerdown: (event) => onDrag(event, i) }, String(i + 1)),
    h("div", { class: "body" }, h("div", { class: "sheet" }, text, preview), opening, asked, said),
    tools,
    panel,
  );
  return { element, cell, text, preview, start, opening, asked, said, lock, write, again, why, panel };
}

function entries(i) {
  const { lines } = store.doc;
  const line = lines[i];
  const tools = [
    { label: line.locked ? "Unlock" : "Lock", act: () => toggleLock(i), disabled: !line.text.trim() },
    { label: state.isWritten(line) && line.text.trim() ? "Keep as it is" : "Write this", act: () => toggleWrite(i), disabled: line.locked || !line.text.trim() },
    { label: "Regenerate this line", act: () => act.regenerate(i), disabled: line.locked },
    { label: "Why this sentence", act: () => act.why(i), disabled: !line.text.trim() },
  ];
  return [
    ...(NARROW.matches ? tools : []),
    { label: "Opening words…", act: () => askOpening(i), disabled: line.locked },
    { label: "Clear", act: () => clear(i), disabled: line.locked || (!line.text && !line.start) },
    { label: "Move up", hint: "Alt ↑", act: () => move(i, -1), disabled: i === 0 },
    { label: "Move down", hint: "Alt ↓", act: () => move(i, 1), disabled: i === lines.length - 1 },
    { label: "Insert a line above", act: () => add(i), disabled: lines.length >= state.MOST },
    { label: "Insert a line below", hint: "Alt ⏎", act: () => add(i + 1), disabled: lines.length >= state.MOST },
    { label: "Remove", act: () => remove(i), disabled: line.locked || lines.length <= state.FEWEST, danger: true },
  ];
}

function grow(row) {
  if (GROWS) return;
  row.text.style.height = "auto";
  row.text.style.height = `${row.text.scrollHeight}px`;
}

const kind = (line) =>
  line.locked ? "locked" : !line.text.trim() ? "blank" : line.write ? "fabula" : "own";

const SAID = {
  locked: "Locked: kept word for word.",
  blank: "Blank: Fabula writes it.",
  fabula: "Fabula may write it anew; lock it to keep it.",
  own: "Given: kept as it is.",
};

function render(doc, ui) {
  while (rows.length > doc.lines.length) {
    closeMenu();
    rows.pop().element.remove();
  }
  while (rows.length < doc.lines.length) {
    rows.push(makeRow(rows.length));
    $("lines").append(rows.at(-1).element);
  }
  doc.lines.forEach((line, i) => patch(rows[i], line, i, doc, ui));
  $("add").disabled = doc.lines.length >= state.MOST;
}

function patch(row, line, i, doc, ui) {
  const which = kind(line);
  const shown = ui.preview?.sentences[i];
  const first = i === 0 && doc.lines.length > 1;
  const last = i === doc.lines.length - 1;
  const hint = first ? "How does it begin?" : last ? "How does it end?" : "Fabula writes this line";
  tell(row.element, { kind: which, preview: shown === undefined ? "no" : "yes" });
  keep(row.text, {
    value: line.text,
    readOnly: line.locked,
    placeholder: line.start ? `${line.start} …` : hint,
    "aria-label": `Sentence ${i + 1} of ${doc.lines.length}`,
    "aria-describedby": `line-said-${i}`,
  });
  const others = elsewhere(line.tag, ui);
  const demands = others.length ? ` Asked for: ${others.map(({ name, label }) => `${name} ${named(label)}`).join(", ")}.` : "";
  keep(row.said, { textContent: SAID[which] + (line.start ? ` Begins with: ${line.start}` : "") + demands });
  ask(row.asked, others);
  keep(row.start, { value: line.start });
  const openable = state.isWritten(line) && (line.start !== "" || ui.opening.has(i));
  keep(row.opening, { hidden: !openable });
  toggle(row.lock, line.locked, line.locked ? "Locked" : "Lock");
  toggle(row.write, state.isWritten(line), "Write this");
  if ((row.lockedIcon ?? null) !== line.locked) {
    row.lockedIcon = line.locked;
    row.lock.replaceChildren(icon(line.locked ? "lock" : "unlock"));
  }
  keep(row.why, { "aria-expanded": String(ui.why?.line === i), "aria-disabled": line.text.trim() ? null : "true" });
  paint(row, line, shown);
  grow(row);
}

/** What other lanes ask of a line, in small words beside it; a click leads to the lane. */
function ask(element, others) {
  const key = JSON.stringify(others);
  if (element.dataset.of === key) return;
  element.dataset.of = key;
  element.hidden = !others.length;
  element.replaceChildren(
    ...others.map(({ lane, name, label }) => h("button", { type: "button", class: "quiet", title: name, "aria-label": `${name}: ${named(label)}`, onclick: () => show({ lane }) }, named(label))),
  );
}

function toggle(button, pressed, label) {
  keep(button, { "aria-pressed": String(pressed), title: label, "aria-label": label });
}

/** A candidate's sentence over the line, its new words marked. */
function paint(row, line, shown) {
  keep(row.preview, { hidden: shown === undefined });
  if (shown === undefined || row.preview.dataset.of === shown) return;
  row.preview.dataset.of = shown;
  const parts = line.text.trim() ? compare(shown, line.text) : [{ text: shown, fresh: false }];
  row.preview.replaceChildren(...parts.flatMap(({ text, fresh }) => [fresh ? h("mark", {}, text) : text, " "]));
}

/** Where the arc and the explanations are drawn. */
export const cells = () => rows.map((row) => row.cell);
export const panels = () => rows.map((row) => row.panel);
