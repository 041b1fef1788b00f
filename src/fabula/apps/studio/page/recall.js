// What was there before: the story that was worked on last, and words that this browser kept because no server had taken
// them, put back where that is safe, offered where it is not.

import * as api from "./api.js";
import * as drafts from "./drafts.js";
import { clear, note, warn } from "./messages.js";
import { isBlank, restored, sameState } from "./state.js";
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
  if (known) return void (await open(story, branch, false));
  const [newest] = HOME ? ((await api.stories(1, 0, "", false).catch(() => null))?.stories ?? []) : [];
  if (newest) await open(newest.id, null, false);
}

/** New stories: this window's own is put back, another's is offered; `begin(doc, title)` opens it. */
export function offer(begin) {
  const own = drafts.found(drafts.nameOf(null));
  const doc = own && !store.ui.story && isBlank(store.doc) ? restored(own.state) : null;
  if (doc) return put(doc, own.title);
  const [first] = drafts.orphans();
  const kept = first && restored(first[1].state);
  if (!kept) return undefined;
  const [name, told] = first;
  return warn("draft", `This browser holds a story that was never saved: “${titled(kept, told.title)}”`, [
    { label: "Open it", act: async () => (await begin(kept, told.title)) && (drafts.forget(name), clear("draft")) },
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
  if (told.revision === branch.revision) {
    put(doc, told.title);
    return note("Words that had not been saved were found in this browser.");
  }
  return warn("draft", "This browser holds words of this branch that were never saved; it was changed elsewhere since.", [
    { label: "Keep them as a branch", act: () => (put(doc, told.title), clear("draft"), grow(`${branch.name} (mine)`)) },
    { label: "Discard them", act: () => (drafts.forget(name), clear("draft")) },
  ]);
}
