// The page to write on: one text of paragraphs and sentences in a ProseMirror editor, which carries words, selection, undo.
//
// A sentence is a node with an id, what is asked of it, and words; without words it is a gap. `store.doc` and the editor
// hold the same story: what is typed goes from here to the store, what other parts change comes back as one step of undo.

import { $, h } from "./dom.js";
import { note } from "./messages.js";
import { beginnings, paragraphs } from "./split.js";
import * as state from "./state.js";
import { change, receive, show, store, subscribe } from "./store.js";
import {
  baseKeymap, closeHistory, Decoration, DecorationSet, EditorState, EditorView, history, keymap, Plugin, redo, redoDepth, Schema,
  Selection, TextSelection, undo, undoDepth,
} from "./vendor/prosemirror.js";

const ATTRIBUTES = ["id", "write", "locked", "start", "tag"];
/** A pause of so many milliseconds ends a step of undo. */
const PAUSE = 500;
const HINTS = { first: "How does it begin?", last: "How does it end?", middle: "" };

const schema = new Schema({
  nodes: {
    doc: { content: "paragraph+", attrs: { people: { default: [] }, notes: { default: "" } } },
    paragraph: { content: "sentence+", selectable: false, toDOM: () => ["p", 0] },
    sentence: {
      content: "text*",
      attrs: Object.fromEntries(ATTRIBUTES.map((name) => [name, { default: name === "id" ? "" : (state.blank()[name] ?? null) }])),
      selectable: false,
      toDOM: () => ["span", { class: "sentence" }, 0],
    },
    text: {},
  },
});

const sentenceOf = (line) => schema.node("sentence", Object.fromEntries(ATTRIBUTES.map((name) => [name, line[name]])), line.text ? [schema.text(line.text)] : []);

function nodeOf({ lines, people, notes }) {
  const groups = [];
  for (const line of lines) if (line.paragraph || !groups.length) groups.push([line]);
    else groups.at(-1).push(line);
  return schema.node("doc", { people, notes }, groups.map((group) => schema.node("paragraph", null, group.map(sentenceOf))));
}

/** Calls with every sentence, the place before it, whether it begins a paragraph, and its place among all. */
function sentences(doc, visit) {
  let at = 0;
  doc.forEach((paragraph, from) => paragraph.forEach((node, offset, place) => visit(node, from + 1 + offset, place === 0, at++)));
}

const known = new WeakMap();

function linesOf(doc) {
  const lines = [];
  sentences(doc, (node, _, paragraph) => {
    const line = known.get(node);
    if (line?.paragraph === paragraph) return lines.push(line);
    const made = { ...state.blank(), ...node.attrs, text: node.textContent, paragraph };
    known.set(node, made);
    return lines.push(made);
  });
  return lines;
}

let view = null;
/** What the editor has given to the store, or taken from it, last. */
let held = null;
/** Elements that stand in the text below a sentence: {id, element}. */
let panels = [];

/** The place before a sentence, or -1. */
function placeOf(id) {
  let place = -1;
  sentences(view.state.doc, (node, pos) => (place = node.attrs.id === id ? pos : place));
  return place;
}

/** The sentence that the caret is in, where in it, and all that a selection touches. */
export function selected() {
  const { $from, $to, from, to } = view.state.selection;
  const ids = [];
  // A selection that only ends where a sentence begins does not touch it.
  const touches = (begin, end) => (from === to || begin === end ? from <= end && to >= begin : from < end && to > begin);
  sentences(view.state.doc, (node, pos) => touches(pos + 1, pos + node.nodeSize - 1) && ids.push(node.attrs.id));
  return { id: $from.parent.attrs.id ?? ids[0], start: $from.parentOffset, end: $from.sameParent($to) ? $to.parentOffset : $from.parent.content.size, ids };
}

/** The caret at the end of a sentence, or at a character of it. */
export function focus(id, at = null) {
  const place = placeOf(id);
  if (place < 0) return;
  const node = view.state.doc.nodeAt(place);
  view.dispatch(view.state.tr.setSelection(TextSelection.create(view.state.doc, place + 1 + (at ?? node.content.size))).scrollIntoView());
  view.focus();
}

/** Selects characters of a sentence and brings them into view. */
export function select(id, from, to) {
  const place = placeOf(id) + 1;
  view.dispatch(view.state.tr.setSelection(TextSelection.create(view.state.doc, place + from, place + to)));
  show({ found: { id, from, to } });
  view.nodeDOM(place - 1)?.scrollIntoView({ block: "nearest" });
}

export const back = () => undo(view.state, view.dispatch);
export const forth = () => redo(view.state, view.dispatch);
export const steps = () => ({ back: undoDepth(view.state), forth: redoDepth(view.state) });

/** A new story: nothing of the one before can be undone. */
export function load() {
  held = store.doc;
  view.updateState(EditorState.create({ doc: nodeOf(store.doc), plugins: view.state.plugins }));
}

export function start() {
  held = store.doc;
  const plugins = [
    history({ newGroupDelay: PAUSE }),
    keymap({
      Enter: enter, "Shift-Enter": enter, "Alt-Enter": gapAfter, Backspace: backspace, Delete: remove, ArrowLeft: step(-1), ArrowRight: step(1),
      "Mod-z": undo, "Mod-y": redo, "Shift-Mod-z": redo, "Alt-ArrowUp": () => change(state.move, selected().id, -1), "Alt-ArrowDown": () => change(state.move, selected().id, 1),
    }),
    keymap(baseKeymap),
    new Plugin({ filterTransaction, appendTransaction, props: { decorations } }),
  ];
  view = new EditorView($("text"), {
    state: EditorState.create({ doc: nodeOf(store.doc), plugins }),
    attributes: { role: "textbox", "aria-multiline": "true", "aria-label": "The story", "aria-describedby": "text-help", spellcheck: "true", id: "story-text" },
    dispatchTransaction: dispatch,
    handleTextInput,
    handlePaste: (_, event) => paste(event.clipboardData.getData("text/plain")),
    handleDOMEvents: { keydown: catchUp, beforeinput, mouseover: (_, event) => hover(event.target), mouseleave: () => hover(null), focus: () => seen() },
    clipboardTextSerializer: (slice) => textOf(slice.content),
  });
  subscribe(fromStore);
}

/** Sentences joined by spaces, paragraphs by an empty row. */
function textOf(content) {
  const rows = [];
  content.forEach((node) => {
    if (node.type.name === "paragraph") rows.push(textOf(node.content));
    else rows.push(node.textContent);
  });
  return rows.join(content.firstChild?.type.name === "paragraph" ? "\n\n" : " ");
}

function dispatch(transaction) {
  const { doc } = view.state;
  const next = view.state.apply(transaction);
  view.updateState(next);
  // A locked sentence has refused the change otherwise.
  if (next.doc !== doc) {
    const { people, notes } = next.doc.attrs;
    held = { ...store.doc, lines: linesOf(next.doc), people, notes };
    receive(held);
  }
  if (transaction.docChanged || transaction.selectionSet) seen();
}

/** The sentence at the caret is the one that the tools are about. */
function seen() {
  const { id } = selected();
  if (store.ui.at !== id) show({ at: id });
  return false;
}

function hover(target) {
  const over = target?.closest?.(".sentence")?.dataset.id ?? null;
  if (store.ui.over !== over) show({ over });
  return false;
}

/** What other parts have changed, as one step; notes have the undo of their own field. */
function fromStore(doc) {
  if (doc !== held) {
    const transaction = closeHistory(view.state.tr);
    const before = held;
    held = doc;
    if (doc.lines !== before.lines) differ(transaction, doc);
    for (const name of ["people", "notes"]) if (doc[name] !== view.state.doc.attrs[name]) transaction.setDocAttribute(name, doc[name]);
    if (doc.notes !== before.notes && doc.lines === before.lines && doc.people === before.people) transaction.setMeta("addToHistory", false);
    if (transaction.docChanged) {
      view.updateState(view.state.apply(transaction.setMeta("store", true)));
      held = store.doc = { ...doc, lines: linesOf(view.state.doc) };
      if (store.ui.at !== null) store.ui.at = selected().id;
    }
  }
  const stamp = JSON.stringify([store.ui.preview?.sentences, store.ui.at, store.ui.over, store.ui.found, panels.map(({ id }) => id)]);
  if (view.dom.dataset.stamp === stamp) return;
  view.dom.dataset.stamp = stamp;
  view.updateState(view.state);
}

/** The steps from the editor's story to this one: attributes and words where the sentences are the same, else what differs. */
function differ(transaction, doc) {
  const wanted = nodeOf(doc);
  const here = transaction.doc;
  const shape = (node) => JSON.stringify(node.content.content.map((paragraph) => paragraph.content.content.map((one) => one.attrs.id)));
  if (shape(here) !== shape(wanted)) {
    const { id, start: offset } = selected();
    const from = here.content.findDiffStart(wanted.content);
    if (from === null) return;
    let { a, b } = here.content.findDiffEnd(wanted.content);
    const overlap = Math.max(0, from - Math.min(a, b));
    a += overlap;
    b += overlap;
    transaction.replace(from, a, wanted.slice(from, b));
    // Where a slice that is open at its sides cannot be put in as it is, the whole text is.
    if (!transaction.doc.content.eq(wanted.content)) transaction.replaceWith(0, transaction.doc.content.size, wanted.content);
    // The caret stays with its sentence.
    sentences(transaction.doc, (node, pos) => node.attrs.id === id && transaction.setSelection(TextSelection.create(transaction.doc, pos + 1 + Math.min(offset, node.content.size))));
    return;
  }
  const targets = [];
  sentences(wanted, (node) => targets.push(node));
  const changes = [];
  sentences(here, (node, pos, _, at) => changes.push([node, pos, targets[at]]));
  for (const [node, pos, target] of changes.reverse()) {
    if (node.eq(target)) continue;
    if (node.textContent !== target.textContent) transaction.replaceWith(pos + 1, pos + 1 + node.content.size, target.content);
    for (const name of ATTRIBUTES) if (node.attrs[name] !== target.attrs[name]) transaction.setNodeAttribute(pos, name, target.attrs[name]);
  }
}

/** Every sentence has an id of its own, and typing makes it the writer's. */
function appendTransaction(transactions, before, now) {
  if (!transactions.some((one) => one.docChanged)) return null;
  const repair = now.tr;
  const ids = new Set();
  const texts = new Map();
  sentences(before.doc, (node) => texts.set(node.attrs.id, node.textContent));
  const typed = !transactions.some((one) => one.getMeta("store") || one.getMeta("history$"));
  sentences(now.doc, (node, pos) => {
    const { id, write } = node.attrs;
    if (!id || ids.has(id)) repair.setNodeMarkup(pos, null, { ...schema.nodes.sentence.defaultAttrs, id: state.newId() });
    else if (write && typed && texts.has(id) && texts.get(id) !== node.textContent) repair.setNodeAttribute(pos, "write", false);
    ids.add(id);
  });
  return repair.docChanged ? repair : null;
}

/** Nobody writes into a locked sentence but the one who unlocks it; a story has a bound. */
function filterTransaction(transaction, { doc }) {
  if (!transaction.docChanged || transaction.getMeta("store") || transaction.getMeta("history$")) return true;
  const texts = new Map();
  let longest = 0;
  sentences(transaction.doc, (node) => {
    texts.set(node.attrs.id, node.textContent);
    longest = Math.max(longest, node.content.size);
  });
  let free = true;
  let longer = 0;
  sentences(doc, (node) => {
    if (node.attrs.locked && texts.get(node.attrs.id) !== node.textContent) free = false;
    longer = Math.max(longer, node.content.size);
  });
  if (!free) note("This sentence is locked; unlock it first.");
  else if (texts.size > state.MOST) note(`A story has at most ${state.MOST} sentences.`);
  else if (longest > state.LONGEST && longest > longer) note(`A sentence has at most ${state.LONGEST.toLocaleString("en")} characters.`);
  else return true;
  return false;
}

/** The browser tells of a moved caret a moment later: a key that follows at once must not act where the caret was. */
function catchUp() {
  if (!view.composing) view.domObserver.flush();
  return false;
}

// Chromium puts a letter that is typed at the beginning of a span behind the span before: so letters are put in here.
function beforeinput(_, event) {
  if (event.inputType !== "insertText" || event.data === null || view.composing) return false;
  event.preventDefault();
  catchUp();
  const { from, to } = view.state.selection;
  if (!handleTextInput(view, from, to, event.data)) view.dispatch(view.state.tr.insertText(event.data, from, to).scrollIntoView());
  return true;
}

/** A letter after the end of a sentence begins the next one. */
function handleTextInput(_, from, to, text) {
  const $from = view.state.doc.resolve(from);
  if (from !== to || $from.depth < 2 || !text.trim()) return false;
  const { parentOffset: offset, parent } = $from;
  const after = parent.textContent.slice(0, offset) + text;
  const place = beginnings(after).at(-1) ?? -1;
  if (place !== offset && !(offset - place === 1 && /["'“‘(]/.test(after[place]))) return false;
  const at = from - (offset - place);
  const transaction = view.state.tr.insertText(text, from);
  transaction.split(at, 1, [{ type: schema.nodes.sentence, attrs: fresh().attrs }]);
  transaction.delete(at - (place - after.slice(0, place).trimEnd().length), at);
  view.dispatch(transaction.scrollIntoView());
  return true;
}

const fresh = () => schema.node("sentence", { ...schema.nodes.sentence.defaultAttrs, id: state.newId() });

/** Enter splits a sentence; at its end a gap follows; in a gap it begins a paragraph. */
function enter(editor, send) {
  const transaction = closeHistory(editor.tr);
  if (!editor.selection.empty) transaction.deleteSelection();
  const { $from } = transaction.selection;
  const { parent, parentOffset, depth } = $from;
  const words = parent.textContent;
  if (!words && $from.index(depth - 1) > 0) transaction.split($from.before(depth), 1);
  else if (!words.slice(parentOffset).trim() || parent.attrs.locked) put(transaction, $from.after(depth));
  else if (!words.slice(0, parentOffset).trim()) transaction.insert($from.before(depth), fresh());
  else {
    const left = words.slice(0, parentOffset).length - words.slice(0, parentOffset).trimEnd().length;
    const right = words.slice(parentOffset).length - words.slice(parentOffset).trimStart().length;
    transaction.delete($from.pos - left, $from.pos + right);
    transaction.split($from.pos - left, 1, [{ type: schema.nodes.sentence, attrs: fresh().attrs }]);
  }
  send(transaction.scrollIntoView());
  return true;
}

/** A gap at this place, with the caret in it. */
function put(transaction, place) {
  transaction.insert(place, fresh());
  transaction.setSelection(TextSelection.create(transaction.doc, place + 1));
}

export function gapAfter(editor = view.state, send = view.dispatch) {
  const transaction = closeHistory(editor.tr);
  const { $to } = editor.selection;
  put(transaction, $to.depth < 2 ? editor.doc.content.size - 1 : $to.after(2));
  send(transaction.scrollIntoView());
  return true;
}

/** The place of the letter before or after a place in a text, whatever it is made of. */
function letter(text, offset, by) {
  const part = by < 0 ? text.slice(0, offset) : text.slice(offset);
  const letters = [...new Intl.Segmenter("en").segment(part)];
  return letters.length ? (by < 0 ? letters.at(-1) : letters[0]).segment.length : 0;
}

function backspace(editor, send) {
  const { $from, empty } = editor.selection;
  if (!empty) return false;
  if ($from.parentOffset > 0) {
    const size = letter($from.parent.textContent, $from.parentOffset, -1);
    send(editor.tr.delete($from.pos - size, $from.pos).scrollIntoView());
    return true;
  }
  return join(editor, send, $from);
}

/** What begins at this place is joined with what stands before it. */
function join(editor, send, $from) {
  const transaction = closeHistory(editor.tr);
  const at = $from.index(1);
  const start = $from.before(2);
  if (at > 0) {
    const before = $from.node(1).child(at - 1);
    if (!before.content.size) transaction.delete(start - before.nodeSize, start);
    else if (!$from.parent.content.size) {
      transaction.delete(start, start + $from.parent.nodeSize);
      transaction.setSelection(Selection.near(transaction.doc.resolve(start - 1), -1));
    } else {
      transaction.join(start);
      if (!/\s$/.test(before.textContent)) transaction.insertText(" ", start - 1);
    }
  } else if ($from.index(0) > 0) transaction.join($from.before(1));
  else return true;
  send(transaction.scrollIntoView());
  return true;
}

function remove(editor, send) {
  const { $from, empty } = editor.selection;
  if (!empty) return false;
  const { parent, parentOffset } = $from;
  if (parentOffset < parent.content.size) {
    send(editor.tr.delete($from.pos, $from.pos + letter(parent.textContent, parentOffset, 1)));
    return true;
  }
  const next = Selection.findFrom(editor.doc.resolve($from.after(2)), 1, true);
  return next ? join(editor, send, next.$from) : true;
}

/** Over the border of a sentence, where browsers do not agree on what is left and what is right. */
const step = (by) => (editor, send) => {
  const { $head, empty } = editor.selection;
  if (!empty || $head.parentOffset !== (by < 0 ? 0 : $head.parent.content.size)) return false;
  const next = Selection.findFrom(editor.doc.resolve(by < 0 ? $head.before(2) : $head.after(2)), by, true);
  if (next) send(editor.tr.setSelection(next).scrollIntoView());
  return true;
};

function paste(text) {
  const pasted = paragraphs(text);
  if (!pasted.length) return true;
  if (!view.state.selection.empty) view.dispatch(view.state.tr.deleteSelection());
  if (!view.state.selection.empty) return true; // a locked sentence is in it
  const { id, start: from, end: to } = selected();
  if (pasted.length === 1 && pasted[0].length === 1) {
    view.dispatch(closeHistory(view.state.tr).insertText(text.replace(/^\s*[\r\n]\s*|\s*[\r\n]\s*$/g, "").replace(/\s+/g, " ")).scrollIntoView());
    return true;
  }
  if (state.lineOf(store.doc, id).locked) return note("This sentence is locked; unlock it first."), true;
  if (pasted.flat().some((sentence) => sentence.length > state.LONGEST)) return note(`A sentence has at most ${state.LONGEST.toLocaleString("en")} characters: this was not pasted.`), true;
  const { doc, left, last } = state.paste(store.doc, id, from, to, pasted);
  change(() => doc);
  if (last) focus(last);
  if (left) note(`${left} sentences did not fit: a story has at most ${state.MOST}.`);
  return true;
}

/** Shows an element in the text below a sentence, and says whether it is new there; null takes it away. */
export function hang(name, id, element) {
  const now = panels.find((panel) => panel.name === name);
  if ((now?.id ?? null) === id) return false;
  panels = panels.filter((panel) => panel !== now);
  if (id !== null) panels.push({ name, id, element });
  fromStore(store.doc);
  return id !== null;
}

const kind = ({ text, locked, write }) => (locked ? "locked" : !text.trim() ? "gap" : write ? "marked" : "kept");

/** What a sentence looks like, and what is shown in the text that is not of it. */
function decorations({ doc }) {
  const { preview, at, over, found } = store.ui;
  const shown = [];
  let count = 0;
  sentences(doc, () => (count += 1));
  sentences(doc, (node, pos, _, place) => {
    const { id, start, write, locked } = node.attrs;
    const end = pos + node.nodeSize;
    const candidate = preview?.sentences[id];
    const hint = start ? `${start} …` : count > 1 && place === 0 ? HINTS.first : count > 1 && place === count - 1 ? HINTS.last : HINTS.middle;
    const looks = { "data-id": id, "data-number": String(place + 1), "data-kind": kind({ text: node.textContent, locked, write }), "data-hint": hint };
    if (id === at) looks["data-at"] = "yes";
    if (id === over) looks["data-over"] = "yes";
    if (candidate !== undefined) looks["data-preview"] = "yes";
    shown.push(Decoration.node(pos, end, looks));
    if (found?.id === id && found.to <= node.content.size) shown.push(Decoration.inline(pos + 1 + found.from, pos + 1 + found.to, { class: "found-word" }));
    if (candidate !== undefined) shown.push(Decoration.widget(end, () => h("span", { class: "preview" }, candidate), { side: -1, key: `preview ${id} ${candidate}`, ignoreSelection: true }));
    for (const { name, id: below, element } of panels) if (below === id) shown.push(Decoration.widget(end, element, { side: 1, key: `${name} ${id}`, stopEvent: () => true, ignoreSelection: true }));
  });
  return DecorationSet.create(doc, shown);
}
