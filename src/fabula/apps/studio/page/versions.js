// What a branch was: a version every few minutes of work, to read and to go back to.

import * as api from "./api.js";
import { h, pictured } from "./dom.js";
import { note } from "./messages.js";
import { flush } from "./saving.js";
import { restored, revert } from "./state.js";
import { change, store } from "./store.js";
import { ago } from "./stories.js";

const at = (time) => new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" }).format(new Date(time));

/** What a version has that the one before it had not. */
function news({ line, changed, preview }) {
  if (!preview) return "Blank";
  if (line === null) return "The same words";
  return changed ? `Sentence ${line}: ${changed}` : `Sentence ${line} was cleared`;
}

export async function show() {
  if (!(await flush())) return;
  const { story, branch } = store.ui;
  const list = h("ul", { class: "stories-list" });
  const told = h("p", { class: "small", role: "status" }, "Reading…");
  const dialog = h(
    "dialog",
    { class: "versions", "aria-labelledby": "versions-title" },
    h("div", { class: "dialog-head" }, h("h2", { id: "versions-title" }, `Versions of “${branch.name}”`), pictured("close", "Close", { onclick: () => dialog.close() })),
    told,
    list,
  );
  const back = async ({ id, saved }) => {
    try {
      const { state } = await api.version(story.id, branch.id, id);
      const doc = restored(state);
      if (!doc) throw new Error("this version cannot be read");
      dialog.close();
      if (change(revert, Object.fromEntries(Object.keys(state).filter((name) => name in doc).map((name) => [name, doc[name]])))) note(`The story is as it was ${ago(saved)}. Control Z takes that back.`);
      else note("That is how the story is now.");
    } catch (error) {
      told.textContent = error.message;
    }
  };
  const entry = (version) =>
    h("li", {}, h("button", { type: "button", class: "open", onclick: () => back(version) },
      h("span", { class: "title" }, news(version)),
      h("span", { class: "about" }, `${at(version.saved)} · ${ago(version.saved)} · ${version.words} words`)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  try {
    const { versions } = await api.versions(story.id, branch.id);
    told.textContent = versions.length ? "Go back to one, and what is there now can still be had by undo." : "None yet: one is kept for every five minutes of work.";
    list.replaceChildren(...versions.map(entry));
  } catch (error) {
    told.textContent = error.message;
  }
}
