// The story on the server: opened, saved a moment after every change, branched. Never over someone else's revision.

import * as api from "./api.js";
import * as drafts from "./drafts.js";
import { load as fresh } from "./editor.js";
import { stop, usable } from "./filling.js";
import { announce, listen } from "./live.js";
import { clear, note, warn } from "./messages.js";
import { offer, recall } from "./recall.js";
import { LINE, SAVED_FIELDS } from "./schema.js";
import { digest, empty, isBlank, restored, sameState, stored } from "./state.js";
import { show, store, subscribe } from "./store.js";
import { titled } from "./titles.js";

/** A save follows a pause of so many milliseconds, or the oldest unsaved change where there is no pause. */
const SOON = 500;
const LATEST = 1500;
const COPY = 300;
const RETRY = [2000, 4000, 8000, 15000];

/** What the server has: the document and title of the last acknowledged save. */
let clean = { doc: store.doc, title: "" };
let timer = null;
let copying = null;
/** Whether this page has made a copy: one that it has found is kept until its writer has decided. */
let copied = false;
let saving = null;
/** Digests of what was sent since the last answer: one of them may be on the server although its answer was lost. */
const sent = new Set();
let tries = 0;
/** When the oldest change was made that is not saved, and the document that the timer was set for. */
let since = null;
let scheduled = null;
/** What the server would not take as a whole: not offered again before it has changed. */
let refused = null;
/** What the server would not take, by its path: {id, name, value, instead}. Everything else is saved without it. */
const withheld = new Map();
/** Shows again what stands in the way of saving. */
let problem = null;

export const titleOf = (doc, title = store.ui.title) => titled(doc, title);

const automatic = () => !store.ui.title.trim();
/** Candidates alone make no story worth keeping: those of a link are only looked at. */
const counts = (key) => key !== "tray" || store.ui.story !== null;
const changed = (from) => SAVED_FIELDS.some((key) => counts(key) && store.doc[key] !== from.doc[key]) || titleOf(store.doc) !== from.title;
const dirty = () => changed(clean);
const holdsWithheld = () => [...withheld.values()].some((part) => isRefused(store.doc, part));
const nothing = () => !store.ui.story && isBlank(store.doc) && automatic();
/** Whether closing the window now would leave something that only this browser has. */
const unsaved = () => !nothing() && (dirty() || holdsWithheld());

export function start() {
  subscribe((doc, ui) => {
    if (nothing()) return;
    if (!unsaved()) return copied && forgetCopy();
    copying ??= setTimeout(copy, COPY);
    if (["conflict", "saving", "offline"].includes(ui.saved) || !dirty()) return;
    if (refused && !changed(refused)) return;
    if (scheduled && !changed(scheduled)) return; // only something beside the story was shown: the timer runs on
    scheduled = { doc, title: titleOf(doc) };
    // The header has been drawn already: it is drawn again, so that it never says "Saved" of words that are not.
    ui.saved = "unsaved";
    queueMicrotask(() => show({}));
    since ??= performance.now();
    clearTimeout(timer);
    timer = setTimeout(save, Math.max(0, Math.min(SOON, since + LATEST - performance.now())));
  });
  addEventListener("visibilitychange", () => document.hidden && (copy(), dirty() && store.ui.story && save()));
  addEventListener("pagehide", flushNow);
  // A page that comes back out of the browser's memory may be older than what it saved on its way out.
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  addEventListener("beforeunload", (event) => {
    copy();
    if (unsaved()) event.preventDefault();
  });
  document.getElementById("problem").addEventListener("click", () => problem?.());
  offer(begin, open);
  listen(elsewhere);
}

/** Another window has saved: where nothing here is unsaved, what it saved is shown here too. */
async function elsewhere({ story: storyId, branch: branchId, revision }) {
  const { story, branch } = store.ui;
  if (story?.id !== storyId || (branch.id === branchId && branch.revision >= revision)) return;
  const theirs = branch.id === branchId ? await api.branch(storyId, branchId).catch(() => null) : null;
  const whole = await api.story(storyId).catch(() => null);
  if (!whole || store.ui.branch !== branch) return;
  store.ui.branches = whole.tree;
  const doc = theirs && !unsaved() && !saving ? restored(theirs.state) : null;
  if (!doc) return show({});
  store.doc = doc;
  fresh();
  clean = { doc: store.doc, title: whole.automatic ? titleOf(doc, "") : whole.title };
  return show({ story: whole, branch: theirs, title: whole.automatic ? "" : whole.title, saved: "saved" });
}

/** What only this page has, as a copy in the browser. */
function copy() {
  clearTimeout(copying);
  copying = null;
  const { story, branch, title } = store.ui;
  copied = unsaved();
  if (copied) drafts.keep(drafts.nameOf(story, branch), { title, state: stored(store.doc), revision: branch?.revision ?? 0, at: Date.now(), sent: [...sent] });
}

function forgetCopy() {
  copied = false;
  clearTimeout(copying);
  copying = null;
  drafts.forget(drafts.nameOf(store.ui.story, store.ui.branch));
}

/** On the way out: the browser finishes the request after the page is gone. */
function flushNow() {
  copy();
  const { story, branch } = store.ui;
  if (!dirty() || saving || store.ui.saved === "conflict" || nothing()) return;
  const options = { keepalive: true };
  const state = sendable(store.doc);
  const last = story
    ? api.saveBranch(story.id, branch.id, { state, revision: branch.revision }, options)
    : api.createStory(titleOf(store.doc), state, automatic(), options);
  last.catch(() => {});
}

/** Everything that was typed, on the server; false where that could not be. */
export async function flush() {
  clearTimeout(timer);
  if (saving) await saving;
  if (dirty() && !nothing()) await save();
  return ["saved", "new"].includes(store.ui.saved);
}

function save() {
  clearTimeout(timer);
  if (saving) return saving.then(() => (dirty() ? save() : undefined));
  saving = attempt().finally(() => {
    saving = null;
  });
  return saving;
}

/** A refused part of a document: a field of a line by the line's id, else a field of the story. */
function partOf(doc, field) {
  const [, at, name] = /^state\.lines\[(\d+)\]\.(\w+)/.exec(field) ?? [];
  const line = doc.lines[at];
  if (line) return { id: line.id, name, number: Number(at) + 1, value: line[name] };
  const [, whole] = /^state\.(\w+)/.exec(field) ?? [];
  return whole && whole !== "lines" && whole in doc ? { id: null, name: whole, value: doc[whole] } : null;
}

const isRefused = (doc, { id, name, value }) => (id === null ? doc : doc.lines.find((line) => line.id === id))?.[name] === value;

/** What is sent of a document: what was refused is as it was when it was last saved, or as in a new line. */
function sendable(doc) {
  const state = stored(doc);
  for (const part of withheld.values()) {
    if (!isRefused(doc, part)) continue;
    if (part.id === null) state[part.name] = part.instead;
    else state.lines = state.lines.map((line) => (line.id === part.id ? { ...line, [part.name]: LINE[part.name].default, locked: part.name !== "text" && line.locked } : line));
  }
  return state;
}

const NAMES = { people: "The cast", notes: "The notes", tray: "The kept candidates" };

/** Sets aside what was refused; false where that is the whole. */
function setAside(error, doc) {
  const parts = error.fields.map(({ field, message }) => ({ ...partOf(doc, field), message })).filter((part) => part.name && withheld.get(`${part.id} ${part.name}`)?.value !== part.value);
  if (error.status !== 422 || !parts.length) return false;
  for (const part of parts) withheld.set(`${part.id} ${part.name}`, { ...part, instead: stored(clean.doc)[part.name] });
  const [{ id, name, number, message }] = parts;
  const subject = id === null ? (NAMES[name] ?? `The ${name}`) : `Sentence ${number}`;
  const reason = message.replace(/^[\w.[\]]+: */, "").replace(/^sentence \d+ */, "it ");
  trouble("saving", `${subject} ${name === "notes" || name === "tray" ? "are" : "is"} not saved: ${reason}. Everything else is.`);
  return true;
}

async function attempt() {
  if (store.ui.saved === "conflict") return;
  const { doc } = store;
  const title = titleOf(doc);
  const begun = performance.now();
  since = scheduled = null;
  if (store.ui.saved !== "offline") show({ saved: "saving" });
  try {
    if (!store.ui.story) {
      const name = drafts.nameOf(null);
      const made = await api.createStory(title, sendable(doc), automatic());
      drafts.forget(name);
      arrived(made, made.branch);
    } else {
      const { story, branch } = store.ui;
      if (SAVED_FIELDS.some((key) => doc[key] !== clean.doc[key])) {
        const state = sendable(doc);
        sent.add(digest(state));
        store.ui.branch = await api.saveBranch(story.id, branch.id, { state, revision: branch.revision });
        sent.clear();
      }
      if (title !== clean.title) store.ui.story = await api.renameStory(story.id, title, automatic());
    }
    clean = { doc, title };
    if (dirty()) since = begun;
    refused = null;
    if (tries) note("The server is back; everything is saved.");
    tries = 0;
    clear("gone");
    if (holdsWithheld()) return show({ saved: "refused" });
    withheld.clear();
    problem = null;
    clear("saving");
    announce(store.ui.story, store.ui.branch);
    show({ saved: dirty() ? "unsaved" : "saved" });
  } catch (error) {
    await failed(error, doc);
  }
}

/** The bar that says what is wrong, now and whenever it is asked for again. */
function trouble(about, message, actions = []) {
  problem = () => warn(about, message, actions);
  problem();
}

async function failed(error, doc) {
  if (error.gone || error.status >= 500 || error.status === 429) {
    if (!tries) trouble("gone", error.gone ? error.message : `Not saved: ${error.message}.`, [{ label: "Try now", act: save }]);
    clearTimeout(timer);
    timer = setTimeout(save, Math.max(RETRY[Math.min(tries, RETRY.length - 1)], 1000 * (error.wait ?? 0)));
    tries += 1;
    show({ saved: "offline" });
  } else if (error.status === 409 || error.status === 404) await conflict(error, doc);
  else if (setAside(error, doc)) await attempt();
  else {
    refused = { doc: store.doc, title: titleOf(store.doc) };
    trouble("saving", `Not saved: ${error.message}.`);
    show({ saved: "refused" });
  }
}

/** Somebody else has saved or deleted what is on the page. */
async function conflict(error, doc) {
  const { story, branch } = store.ui;
  if (error.status === 409) {
    // The answer to our own save may have been lost on its way: then what is there is what we sent.
    const theirs = await api.branch(story.id, branch.id).catch(() => null);
    if (theirs && sent.has(digest(theirs.state))) {
      if (sameState(theirs.state, sendable(doc))) clean = { doc, title: clean.title };
      store.ui.branch = theirs;
      sent.clear();
      return show({ saved: dirty() ? "unsaved" : "saved" });
    }
  }
  show({ saved: "conflict" });
  const asBranch = { label: "Keep mine as a branch", act: () => grow(`${branch.name} (mine)`, error.status === 404 ? null : branch.id) };
  if (error.status === 409)
    return trouble("saving", "This branch was changed in another window, so yours was not saved over it.", [
      asBranch,
      { label: "Load theirs", act: () => discard(() => load(story.id, branch.id)) },
    ]);
  if (error.field === "branch")
    return trouble("saving", "This branch was deleted in another window. What you see is only on this page.", [asBranch]);
  return trouble("saving", "This story was deleted in another window. What you see is only on this page.", [
    { label: "Keep mine as a new story", act: asStory },
  ]);
}

/** What is on the page is given up on purpose. */
function discard(then) {
  forgetCopy();
  return then();
}

/** A story and the branch of it that is on the page. */
function arrived(story, branch) {
  store.ui.story = story;
  store.ui.branch = branch;
  store.ui.branches = story.tree;
  drafts.remember(story, branch);
  address(`#s=${story.id}&b=${branch.id}`);
}

/** The address of what is on the page: Back leads to the story before, not out of the studio. */
function address(hash, push = false) {
  if (location.hash === hash) return;
  history[push ? "pushState" : "replaceState"](null, "", hash);
}

function place(doc, title) {
  stop();
  clear("model");
  if (doc.model !== null && store.ui.models.length && usable(doc.model) === null)
    warn("model", `This story was written with the model “${doc.model}”, which is not installed here: the studio’s own model goes on with it.`);
  store.doc = doc;
  Object.assign(store.ui, { title, at: null, over: null, batch: null, preview: null, posterior: null, beliefs: null, why: null, words: null });
  fresh();
  for (const about of ["saving", "fill", "gone"]) clear(about);
  clearTimeout(timer);
  withheld.clear();
  sent.clear();
  copied = false;
  tries = 0;
  refused = since = scheduled = problem = null;
}

async function load(storyId, branchId = null, push = false) {
  try {
    const story = await api.story(storyId);
    const latest = [...story.tree].sort((a, b) => b.updated.localeCompare(a.updated))[0];
    const chosen = story.tree.find((branch) => branch.id === branchId) ?? latest;
    const branch = await api.branch(story.id, chosen.id);
    const doc = restored(branch.state);
    if (!doc) throw new api.Failure("this branch cannot be read");
    if (dirty() && store.ui.saved !== "conflict") copy(); // typed while this was read
    const own = story.automatic ?? story.title === titleOf(doc, "");
    place(doc, own ? "" : story.title);
    clean = { doc, title: own ? titleOf(doc, "") : story.title };
    address(`#s=${story.id}&b=${branch.id}`, push);
    arrived(story, branch);
    show({ saved: "saved" });
    recall(story, branch, (name) => grow(name, branch.id));
    return true;
  } catch (error) {
    warn("loading", `Could not open it: ${error.message}`);
    return false;
  }
}

/** Opens a stored story, after what is on the page was saved. */
export async function open(storyId, branchId = null, push = true) {
  clear("loading");
  return (await leave()) && load(storyId, branchId, push);
}

/** A new story: blank, or `doc`. */
export async function begin(doc = empty(), title = "", hash = "") {
  const push = !nothing();
  if (!(await leave())) return false;
  if (!hash) clear("loading");
  place(doc, title);
  Object.assign(store.ui, { story: null, branch: null, branches: [] });
  clean = hash ? { doc, title: titleOf(doc) } : { doc: empty(), title: titleOf(empty(), "") };
  address(hash || "#new", push);
  show({ saved: "new" });
  return true;
}

async function leave() {
  if (saving) await saving;
  if (nothing() || (store.ui.story === null && !dirty())) return true;
  if (await flush()) return true;
  warn("loading", store.ui.saved === "offline" ? "What is on the page could not be saved, so it stays here. Export it, or try again when the server is back." : "What is on the page is not saved, so it stays here. See “What can I do?” at the top.");
  return false;
}

async function asStory() {
  forgetCopy();
  Object.assign(store.ui, { story: null, branch: null, branches: [], saved: "unsaved" });
  await save();
}

/** A branch from here on; what it grows from stays as it is. */
export async function branch() {
  if (!store.ui.story && isBlank(store.doc)) return note("There is nothing to branch from yet.");
  if (!(await flush())) return undefined;
  const taken = new Set(store.ui.branches.map(({ name }) => name));
  let number = store.ui.branches.length + 1;
  while (taken.has(`branch ${number}`)) number += 1;
  return grow(`branch ${number}`, store.ui.branch.id);
}

async function grow(name, parentId, quiet = false) {
  const { doc } = store;
  try {
    const { story, branch: parent } = store.ui;
    const made = await api.createBranch(story.id, { parent: parentId, name: name.slice(0, 200), state: sendable(doc) });
    forgetCopy();
    clean = { doc, title: clean.title };
    const whole = await api.story(story.id);
    address(`#s=${story.id}&b=${made.id}`, true);
    arrived(whole, made);
    problem = null;
    clear("saving");
    show({ saved: dirty() ? "unsaved" : "saved" });
    if (!quiet) note(`You are on “${made.name}” now; “${parent.name}” stays as it was.`);
    return true;
  } catch (error) {
    warn("saving", `No branch was made: ${error.message}`);
    return false;
  }
}

export async function renameBranch(name) {
  if (!name.trim() || !(await flush())) return;
  try {
    const { story, branch: old } = store.ui;
    const body = { name: name.trim().slice(0, 200), state: sendable(store.doc), revision: old.revision };
    arrived(story, await api.saveBranch(story.id, old.id, body));
    store.ui.branches = (await api.story(story.id)).tree;
    show({});
  } catch (error) {
    await failed(error, store.doc);
  }
}

export async function deleteBranch(id) {
  const { story, branch: here } = store.ui;
  try {
    await api.deleteBranch(story.id, id);
    if (id === here.id) {
      clean = { doc: store.doc, title: clean.title };
      await load(story.id, here.parent);
    } else {
      store.ui.branches = (await api.story(story.id)).tree;
      show({});
    }
  } catch (error) {
    warn("loading", `Not deleted: ${error.message}`);
  }
}

/** A story was given a title in the list. */
export async function renameStory(id, title) {
  const told = await api.renameStory(id, title, false);
  if (store.ui.story?.id !== id) return;
  clean = { ...clean, title };
  show({ story: told, title });
}

/** A story that is on the page was deleted from the list. */
export async function deleteStory(id) {
  await api.deleteStory(id);
  if (store.ui.story?.id !== id) return;
  clearTimeout(timer);
  if (saving) await saving.catch(() => {});
  clean = { doc: store.doc, title: titleOf(store.doc) };
  Object.assign(store.ui, { story: null });
  await begin();
}
