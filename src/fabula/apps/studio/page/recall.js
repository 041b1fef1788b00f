// What was there before: the story that was worked on last, and words that this browser kept because no server had taken
// them, put back where that is safe, offered where it is not.

import * as api from "./api.js";
import * as drafts from "./drafts.js";
import { clear, note, warn } from "./messages.js";
import { digest, isBlank, restored, sameState } from "./state.js";
import { show, store } from "./store.js";
import { titled } from "./titles.js";

function put(doc, title) {
  store.doc = doc;
  show({ title });
}

/** Whether the studio runs on the writer's own machine: elsewhere the newest story may be somebody else's. */
const HOME = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

/** The story that was worked on last, in this browser or, on its own machine, by anybody; `open(story, branch)` opens it. */
export async function resume(open) {
  if (drafts.found(drafts.nameOf(null))) return; // this window has a new story that no server has
  const [story, branch] = drafts.last() ?? [];
  const known = story && (await api.story(story).catch(() => null));
  if (!isBlank(store.doc)) return; // something is being typed already
  if (known) return void (await open(story, branch, false));
  const [newest] = HOME ? ((await api.stories(1, 0, "", false).catch(() => null))?.stories ?? []) : [];
  if (newest && isBlank(store.doc)) await open(newest.id, null, false);
}

/** A copy so young, in milliseconds, may be of a story that its window has sent on its way out and the server not stored yet. */
const YOUNG = 3000;

/** The id of the story that the server has made of a copy, or null. */
async function arrived({ title, state, at = 0 }) {
  const doc = restored(state);
  const name = doc && titled(doc, title);
  const { stories } = await api.stories(20, 0, "", false).catch(() => ({ stories: [] }));
  for (const { id } of stories.filter((one) => one.title === name)) {
    const branch = await api.story(id).then(({ tree }) => api.branch(id, tree[0].id)).catch(() => null);
    if (branch && sameState(branch.state, state)) return id;
  }
  if (Date.now() - at > YOUNG) return null;
  await new Promise((resolve) => setTimeout(resolve, YOUNG / 6));
  return arrived({ title, state, at });
}

/** New stories: this window's own is put back, another's is offered; what the server has after all is opened from there. */
export async function offer(begin, open) {
  const own = drafts.found(drafts.nameOf(null));
  const doc = own && !store.ui.story && isBlank(store.doc) ? restored(own.state) : null;
  if (doc) {
    const id = await arrived(own);
    const begun = !isBlank(store.doc); // something was typed meanwhile: the copy is kept beside it
    if (begun) drafts.park(own);
    else if (id === null) return put(doc, own.title);
    else return drafts.forget(drafts.nameOf(null)), open(id, null, false);
  }
  const [first] = drafts.orphans();
  const kept = first && restored(first[1].state);
  if (!kept) return undefined;
  const [name, copy] = first;
  if ((await arrived(copy)) !== null) return drafts.forget(name);
  return warn("draft", `This browser holds a story that was never saved: “${titled(kept, copy.title)}”`, [
    { label: "Open it", act: async () => (await begin(kept, copy.title)) && (drafts.forget(name), clear("draft")) },
    { label: "Discard it", act: () => (drafts.forget(name), clear("draft")) },
  ]);
}

/** Words of a stored branch; `grow(name)` makes a branch of what is on the page. */
export function recall(story, branch, grow) {
  const name = drafts.nameOf(story, branch);
  const told = drafts.found(name);
  const doc = told && restored(told.state);
  if (!doc) return undefined;
  if (sameState(told.state, branch.state)) return drafts.forget(name);
  // The last save of the window that is gone may have arrived: then the copy follows it.
  const follows = told.sent?.includes(digest(branch.state));
  if (follows || told.revision === branch.revision) {
    put(doc, told.title);
    return note("Words that had not been saved were found in this browser.");
  }
  return warn("draft", "This browser holds words of this branch that were never saved; it was changed elsewhere since.", [
    { label: "Keep them as a branch", act: () => (put(doc, told.title), clear("draft"), grow(`${branch.name} (mine)`)) },
    { label: "Discard them", act: () => (drafts.forget(name), clear("draft")) },
  ]);
}
