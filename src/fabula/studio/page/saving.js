// The story on the server: opened, saved a moment after every change, branched. Never over someone else's revision.

import * as api from "./api.js";
import { stop } from "./filling.js";
import { clear, note, warn } from "./messages.js";
import { empty, isBlank, restored, stored } from "./state.js";
import { show, store, subscribe } from "./store.js";

const SOON = 500;
const RETRY = [2000, 4000, 8000, 15000];
const KEPT = ["lines", "seed", "candidates", "temperature", "model", "taken"];

/** What the server has: the document and title of the last acknowledged save. */
let clean = { doc: store.doc, title: "" };
let timer = null;
let saving = null;
let tries = 0;
/** What the server would not take: not offered again before it has changed. */
let refused = null;

/** A title where none was given: how the story begins. */
export function titleOf(doc, title = store.ui.title) {
  if (title.trim()) return title.trim().slice(0, 200);
  const words = (doc.lines.find((line) => line.text.trim())?.text ?? "").trim().split(/\s+/);
  const begin = words.slice(0, 7).join(" ");
  return (words.length > 7 ? `${begin.replace(/[.,;:!?]+$/, "")} …` : begin).slice(0, 200) || "Untitled";
}

const changed = (from) => KEPT.some((key) => store.doc[key] !== from.doc[key]) || titleOf(store.doc) !== from.title;
const dirty = () => changed(clean);

export function start() {
  subscribe((doc, ui) => {
    if (["conflict", "saving"].includes(ui.saved) || !dirty() || (!ui.story && isBlank(doc) && !ui.title.trim())) return;
    if (refused && !changed(refused)) return;
    if (ui.saved !== "offline") ui.saved = "unsaved";
    clearTimeout(timer);
    timer = setTimeout(save, ui.saved === "offline" ? RETRY[Math.min(tries, RETRY.length - 1)] : SOON);
  });
  addEventListener("visibilitychange", () => document.hidden && dirty() && store.ui.story && save());
  addEventListener("pagehide", flushNow);
  // A page that comes back out of the browser's memory may be older than what it saved on its way out.
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  addEventListener("beforeunload", (event) => {
    if (["offline", "conflict"].includes(store.ui.saved) && dirty()) event.preventDefault();
  });
}

/** On the way out: the browser finishes the request after the page is gone. */
function flushNow() {
  const { story, branch } = store.ui;
  if (!dirty() || saving || store.ui.saved === "conflict" || (!story && isBlank(store.doc))) return;
  const state = stored(store.doc);
  const options = { keepalive: true };
  const last = story
    ? api.saveBranch(story.id, branch.id, { state, revision: branch.revision }, options)
    : api.createStory(titleOf(store.doc), state, options);
  last.catch(() => {});
}

/** Everything that was typed, on the server; false where that could not be. */
export async function flush() {
  clearTimeout(timer);
  if (saving) await saving;
  if (dirty() && (store.ui.story || !isBlank(store.doc))) await save();
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

async function attempt() {
  if (store.ui.saved === "conflict") return;
  const { doc } = store;
  const title = titleOf(doc);
  if (store.ui.saved !== "offline") show({ saved: "saving" });
  try {
    if (!store.ui.story) {
      const made = await api.createStory(title, stored(doc));
      arrived(made, made.branch);
    } else {
      const { story, branch } = store.ui;
      if (KEPT.some((key) => doc[key] !== clean.doc[key])) {
        const saved = await api.saveBranch(story.id, branch.id, { state: stored(doc), revision: branch.revision });
        store.ui.branch = saved;
      }
      if (title !== clean.title) store.ui.story = await api.renameStory(story.id, title);
    }
    clean = { doc, title };
    refused = null;
    if (tries) note("The server is back; everything is saved.");
    tries = 0;
    clear("saving");
    clear("gone");
    show({ saved: dirty() ? "unsaved" : "saved" });
  } catch (error) {
    failed(error);
  }
}

function failed(error) {
  if (error.gone || error.status >= 500 || error.status === 429) {
    if (!tries) warn("saving", error.gone ? error.message : `Not saved: ${error.message}.`, [{ label: "Try now", act: save }]);
    timer = setTimeout(save, RETRY[Math.min(tries, RETRY.length - 1)]);
    tries += 1;
    show({ saved: "offline" });
  } else if (error.status === 409 || error.status === 404) {
    show({ saved: "conflict" });
    const lost = error.status === 404;
    warn("saving", lost ? "This story was deleted in another window. What you see is only on this page." : "This branch was changed in another window, so yours was not saved over it.", [
      lost ? { label: "Keep mine as a new story", act: asStory } : { label: "Keep mine as a branch", act: asBranch },
      ...(lost ? [] : [{ label: "Load theirs", act: () => load(store.ui.story.id, store.ui.branch.id) }]),
    ]);
  } else {
    refused = { doc: store.doc, title: titleOf(store.doc) };
    warn("saving", `Not saved: ${error.message}.`);
    show({ saved: "refused" });
  }
}

/** A story and the branch of it that is on the page. */
function arrived(story, branch) {
  store.ui.story = story;
  store.ui.branch = branch;
  store.ui.branches = story.tree;
  history.replaceState(null, "", `#s=${story.id}&b=${branch.id}`);
}

function place(doc, title) {
  stop();
  store.doc = doc;
  Object.assign(store.ui, { title, batch: null, preview: null, posterior: null, why: null, opening: new Set() });
  for (const about of ["saving", "fill", "gone"]) clear(about);
  tries = 0;
}

async function load(storyId, branchId = null) {
  try {
    const story = await api.story(storyId);
    const latest = [...story.tree].sort((a, b) => b.updated.localeCompare(a.updated))[0];
    const chosen = story.tree.find((branch) => branch.id === branchId) ?? latest;
    const branch = await api.branch(story.id, chosen.id);
    const doc = restored(branch.state);
    if (!doc) throw new api.Failure("this branch cannot be read");
    const title = story.title === titleOf(doc, "") ? "" : story.title;
    place(doc, title);
    clean = { doc, title: story.title };
    arrived(story, branch);
    show({ saved: "saved" });
    return true;
  } catch (error) {
    warn("loading", `Could not open it: ${error.message}`);
    return false;
  }
}

/** Opens a stored story, after what is on the page was saved. */
export async function open(storyId, branchId = null) {
  clear("loading");
  return (await leave()) && load(storyId, branchId);
}

/** A new story: blank, or `doc`. */
export async function begin(doc = empty(), title = "", hash = "") {
  if (!(await leave())) return false;
  if (!hash) clear("loading");
  place(doc, title);
  Object.assign(store.ui, { story: null, branch: null, branches: [] });
  clean = { doc: hash ? doc : empty(), title: titleOf(empty(), "") };
  if (hash) clean.title = titleOf(doc);
  history.replaceState(null, "", hash || location.pathname);
  show({ saved: "new" });
  return true;
}

async function leave() {
  if (!store.ui.story && isBlank(store.doc)) return true;
  if (store.ui.story === null && !dirty()) return true;
  if (await flush()) return true;
  warn("loading", "What is on the page could not be saved, so it stays here. Export it, or try again when the server is back.");
  return false;
}

async function asStory() {
  Object.assign(store.ui, { story: null, branch: null, branches: [], saved: "unsaved" });
  await save();
}

async function asBranch() {
  await grow(`${store.ui.branch.name} (mine)`);
}

/** A branch from here on; what it grows from stays as it is. */
export async function branch() {
  if (!store.ui.story && isBlank(store.doc)) return note("There is nothing to branch from yet.");
  if (!(await flush())) return undefined;
  const taken = new Set(store.ui.branches.map(({ name }) => name));
  let number = store.ui.branches.length + 1;
  while (taken.has(`branch ${number}`)) number += 1;
  return grow(`branch ${number}`);
}

async function grow(name) {
  const { doc } = store;
  try {
    const { story, branch: parent } = store.ui;
    const made = await api.createBranch(story.id, { parent: parent.id, name: name.slice(0, 200), state: stored(doc) });
    clean = { doc, title: clean.title };
    arrived(await api.story(story.id), made);
    clear("saving");
    show({ saved: dirty() ? "unsaved" : "saved" });
    note(`You are on “${made.name}” now; “${parent.name}” stays as it was.`);
  } catch (error) {
    warn("saving", `No branch was made: ${error.message}`);
  }
}

export async function renameBranch(name) {
  if (!name.trim() || !(await flush())) return;
  try {
    const { story, branch: old } = store.ui;
    const body = { name: name.trim().slice(0, 200), state: stored(store.doc), revision: old.revision };
    arrived(story, await api.saveBranch(story.id, old.id, body));
    store.ui.branches = (await api.story(story.id)).tree;
    show({});
  } catch (error) {
    failed(error);
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
