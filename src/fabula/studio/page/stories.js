// The list of stored stories: open, begin, delete.

import * as api from "./api.js";
import { $, h, pictured } from "./dom.js";
import { ask, note } from "./messages.js";
import * as saving from "./saving.js";
import { store } from "./store.js";

const PAGE = 20;
let offset = 0;

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
  $("stories").addEventListener("click", (event) => event.target === $("stories") && $("stories").close());
}

async function open() {
  await saving.flush();
  offset = 0;
  $("stories-list").replaceChildren();
  $("stories-none").hidden = true;
  $("stories").showModal();
  await more();
}

async function more() {
  try {
    const { stories } = await api.stories(PAGE, offset);
    offset += stories.length;
    $("stories-list").append(...stories.map(entry));
    $("stories-more").hidden = stories.length < PAGE;
    $("stories-none").hidden = offset > 0;
    $("stories-none").textContent = "Nothing is stored yet. Whatever you write is saved here by itself.";
  } catch (error) {
    $("stories-none").textContent = error.message;
    $("stories-none").hidden = false;
    $("stories-more").hidden = true;
  }
}

const AGES = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]];

function ago(time) {
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  for (const [unit, length] of AGES) if (seconds >= length) return words.format(-Math.floor(seconds / length), unit);
  return "just now";
}

function entry(story) {
  const item = h(
    "li",
    { "data-current": story.id === store.ui.story?.id ? "yes" : "no" },
    h(
      "button",
      {
        type: "button",
        class: "open",
        onclick: async () => {
          if (await saving.open(story.id)) $("stories").close();
        },
      },
      h("span", { class: "title" }, story.title),
      h("span", { class: "about" }, ago(story.updated), story.branches > 1 ? ` · ${story.branches} branches` : ""),
    ),
    pictured("close", `Delete ${story.title}`, { onclick: () => remove(story, item) }),
  );
  return item;
}

async function remove(story, item) {
  const sure = await ask(`Delete “${story.title}”?`, "The story and all its branches are gone then.", [
    { label: "Keep it", value: null },
    { label: "Delete", value: true, danger: true },
  ]);
  if (!sure) return;
  try {
    await saving.deleteStory(story.id);
    item.remove();
    offset -= 1;
    $("stories-none").hidden = offset > 0;
    note(`“${story.title}” was deleted.`);
    $("stories-new").focus();
  } catch (error) {
    $("stories-none").textContent = error.message;
    $("stories-none").hidden = false;
  }
}
