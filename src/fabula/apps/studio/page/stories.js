// The list of stored stories: search, open, begin, rename, duplicate, throw away and take back.

import * as api from "./api.js";
import { $, h, pictured } from "./dom.js";
import { menu } from "./menu.js";
import { ask, note } from "./messages.js";
import * as saving from "./saving.js";
import { store } from "./store.js";

const PAGE = 20;
let offset = 0;
let trash = false;
/** Answers to an older question are not shown. */
let question = 0;
let typing = null;

export function start() {
  $("stories-open").addEventListener("click", open);
  $("stories-close").addEventListener("click", () => $("stories").close());
  $("stories-new").addEventListener("click", async () => {
    $("stories").close();
    await saving.begin();
  });
  $("stories-import").addEventListener("click", () => {
    $("stories").close();
    $("import").click();
  });
  $("stories-more").addEventListener("click", more);
  $("stories-query").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(again, 200);
  });
  $("stories-trash").addEventListener("click", () => {
    trash = !trash;
    again();
  });
  $("stories").addEventListener("click", (event) => event.target === $("stories") && $("stories").close());
}

async function open() {
  await saving.flush();
  trash = false;
  $("stories-query").value = "";
  $("stories-list").replaceChildren();
  $("stories").showModal();
  await again();
}

async function again() {
  offset = 0;
  $("stories-trash").setAttribute("aria-pressed", String(trash));
  $("stories-name").textContent = trash ? "Trash" : "Stories";
  await more();
}

function none() {
  if (offset) return "";
  if ($("stories-query").value.trim()) return "No story holds these words.";
  return trash ? "The trash is empty." : "Nothing is stored yet. Whatever you write is saved here by itself.";
}

async function more() {
  question += 1;
  const asked = question;
  const begin = offset;
  try {
    const { stories } = await api.stories(PAGE, begin, $("stories-query").value, trash);
    if (asked !== question) return;
    offset = begin + stories.length;
    const entries = stories.map(entry);
    if (begin) $("stories-list").append(...entries);
    else $("stories-list").replaceChildren(...entries);
    $("stories-more").hidden = stories.length < PAGE;
    told(none());
  } catch (error) {
    told(error.message);
    $("stories-more").hidden = true;
  }
}

function told(message) {
  $("stories-none").textContent = message;
  $("stories-none").hidden = !message;
}

const AGES = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]];

export function ago(time) {
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  for (const [unit, length] of AGES) if (seconds >= length) return words.format(-Math.floor(seconds / length), unit);
  return "just now";
}

function entry(story) {
  const about = [ago(story.updated), story.words === 1 ? "1 word" : `${story.words} words`, story.branches > 1 ? `${story.branches} branches` : ""];
  return h(
    "li",
    { "data-current": story.id === store.ui.story?.id ? "yes" : "no" },
    h(
      "button",
      {
        type: "button",
        class: "open",
        "aria-disabled": trash ? "true" : null,
        onclick: async () => {
          if (!trash && (await saving.open(story.id))) $("stories").close();
        },
      },
      h("span", { class: "title" }, story.title),
      h("span", { class: "about" }, about.filter(Boolean).join(" · ")),
      h("span", { class: "glimpse" }, story.preview),
    ),
    menu(pictured("more", `More for ${story.title}`), () => (trash ? thrown(story) : kept(story))),
  );
}

const kept = (story) => [
  { label: "Rename…", act: () => rename(story) },
  { label: "Duplicate", act: () => doing(() => api.copyStory(story.id), `“${story.title}” was duplicated.`) },
  { label: "Move to the trash", danger: true, act: () => doing(() => saving.deleteStory(story.id), `“${story.title}” is in the trash.`) },
];

const thrown = (story) => [
  { label: "Restore", act: () => doing(() => api.restoreStory(story.id), `“${story.title}” is back.`) },
  { label: "Delete for ever…", danger: true, act: () => destroy(story) },
];

/** An action on a story, then the list as it is now. */
async function doing(act, message) {
  try {
    await act();
    note(message);
    await again();
    $("stories-query").focus();
  } catch (error) {
    told(error.message);
  }
}

async function rename(story) {
  const name = await ask("Title of the story", null, [{ label: "Cancel", value: null }, { label: "Rename", value: true, primary: true }], story.title);
  if (name?.trim()) await doing(() => saving.renameStory(story.id, name.trim().slice(0, 200)), `It is called “${name.trim()}” now.`);
}

async function destroy(story) {
  const sure = await ask(`Delete “${story.title}” for ever?`, "The story and all its branches are gone then.", [
    { label: "Keep it", value: null },
    { label: "Delete", value: true, danger: true },
  ]);
  if (sure) await doing(() => api.destroyStory(story.id), `“${story.title}” was deleted.`);
}
