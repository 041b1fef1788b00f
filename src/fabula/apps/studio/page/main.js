// The page starts here: parts are wired to each other, keys to actions, the address to a story.

import * as api from "./api.js";
import * as arc from "./arc.js";
import { wordCount } from "./books.js";
import * as branches from "./branches.js";
import * as cast from "./cast.js";
import * as cards from "./cards.js";
import { $, h, icon, keep, s } from "./dom.js";
import * as files from "./files.js";
import * as filling from "./filling.js";
import * as editor from "./editor.js";
import { lanesOf, withPart } from "./lanes.js";
import * as link from "./link.js";
import { menu } from "./menu.js";
import { ask, note, warn } from "./messages.js";
import { resume } from "./recall.js";
import * as saving from "./saving.js";
import * as settings from "./settings.js";
import { sketch, SHAPES, tagsOf } from "./shapes.js";
import * as state from "./state.js";
import * as search from "./search.js";
import * as stories from "./stories.js";
import { change, show, store, subscribe } from "./store.js";
import * as tray from "./tray.js";
import * as verbs from "./verbs.js";
import * as why from "./why.js";

const EXAMPLES = [
  { says: "A dog", lines: ["Tom was afraid of dogs.", "", "", "", "Now the two of them sleep in the same bed."] },
  { says: "A leak", lines: ["Our roof began to leak during the storm.", "", "", "", "We slept well that night."], tags: ["negative", null, null, "positive", "positive"] },
  { says: "A wallet", lines: ["Sam lost his wallet at the beach.", "", "", "He thanked the stranger."] },
];

const SAVED = {
  new: "",
  unsaved: "Saving…",
  saving: "Saving…",
  saved: "Saved",
  offline: "Not saved: no server",
  conflict: "Not saved: changed elsewhere",
  refused: "Not saved",
};

function header() {
  $("title").addEventListener("input", () => show({ title: $("title").value }));
  $("undo").addEventListener("click", editor.back);
  $("redo").addEventListener("click", editor.forth);
  subscribe((doc, ui) => {
    keep($("title"), { value: ui.title, placeholder: saving.titleOf(doc, "") === "Untitled" ? "Untitled story" : saving.titleOf(doc, "") });
    keep($("saved"), { textContent: SAVED[ui.saved] });
    $("saved").dataset.state = ui.saved;
    keep($("problem"), { hidden: !["offline", "conflict", "refused"].includes(ui.saved) });
    const { back, forth } = editor.steps();
    undoable($("undo"), "Undo", "Ctrl+Z", back);
    undoable($("redo"), "Redo", "Ctrl+Shift+Z", forth);
    const words = wordCount(doc);
    keep($("count"), { textContent: words ? `${words} ${words === 1 ? "word" : "words"}` : "" });
    const name = saving.titleOf(doc);
    document.title = name === "Untitled" ? "Fabula studio" : `${name} – Fabula studio`;
  });
}

/** Not disabled but said to be: focus is not lost when the last step is undone. */
function undoable(button, name, keys, steps) {
  keep(button, { "aria-disabled": steps ? null : "true", title: steps ? `${name} (${keys})` : `Nothing to ${name.toLowerCase()}` });
}

/** Every point of the arc, at once. */
function bendAll(tags) {
  const count = lanesOf(store.ui).length;
  const moods = tags(store.ui.labels);
  change(state.bend, Object.fromEntries(store.doc.lines.map((line, i) => [line.id, withPart(line.tag, 0, count, moods[i])])));
}

function shapes() {
  menu($("shapes"), () => [
    ...SHAPES.map((shape) => ({
      label: shape.name,
      hint: shape.says,
      picture: s("svg", { class: "sketch", viewBox: "-2 -2 40 20", "aria-hidden": "true" }, s("polyline", { points: sketch(shape, 36, 16) })),
      act: () => bendAll((labels) => tagsOf(shape, store.doc.lines.length, labels)),
    })),
    { label: "Free", hint: "let the model choose", picture: s("svg", { class: "sketch free", viewBox: "-2 -2 40 20", "aria-hidden": "true" }, s("polyline", { points: "0,8 36,8" })), act: () => bendAll(() => store.doc.lines.map(() => null)) },
  ]);
}

function theme() {
  const root = document.documentElement;
  const choose = (value) => {
    if (value) root.dataset.theme = value;
    else delete root.dataset.theme;
    try {
      if (value) localStorage.setItem("fabula.theme", value);
      else localStorage.removeItem("fabula.theme");
    } catch {
      // not remembered then
    }
  };
  const now = () => root.dataset.theme ?? "";
  menu($("theme"), () => [
    { label: "As the system", current: now() === "", act: () => choose("") },
    { label: "Light", current: now() === "light", act: () => choose("light") },
    { label: "Dark", current: now() === "dark", act: () => choose("dark") },
  ]);
}

function examples() {
  $("examples").append(
    ...EXAMPLES.map(({ says, lines: texts, tags }) =>
      h("button", {
        type: "button",
        onclick: async () => {
          const { labels } = store.ui;
          const asked = texts.map((text, i) => state.blank({ text, paragraph: i === 0, tag: labels.includes(tags?.[i]) ? tags[i] : null }));
          if (await saving.begin({ ...state.empty(), lines: asked })) filling.fill();
        },
      }, h("span", { class: "first" }, texts[0]), h("span", { class: "last" }, `… ${texts.at(-1)}`), h("span", { class: "heard" }, ` Example: ${says}`)),
    ),
  );
}

/** Fields with an undo of their own. */
const OWN_UNDO = "#title, #cast-notes, #search input";

function keys() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const command = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    const undoes = command && !event.altKey && !event.target.matches?.(OWN_UNDO);
    if (undoes && key === "z") (event.shiftKey ? editor.forth : editor.back)();
    else if (undoes && key === "y") editor.forth();
    else if (command && key === "enter") filling.fill();
    else if (command && key === "s") saving.flush();
    else if (command && (key === "f" || key === "h")) search.open();
    else if (key === "escape" && (store.ui.words || store.ui.why || store.ui.batch?.only)) {
      show({ words: null, why: null });
      if (store.ui.batch?.only) cards.dismiss();
    } else if (key === "escape" && store.ui.batch?.state === "running") filling.stop();
    else return;
    event.preventDefault();
  });
}

async function copyLink(request) {
  const address = `${location.origin}${location.pathname}#r=${link.encode(filling.recipe(request))}`;
  try {
    await navigator.clipboard.writeText(address);
    note("Link copied: it gives the same candidates again, here or wherever the same model is.");
  } catch {
    await ask("A link that gives the same candidates again", "Copy it from here:", [{ label: "Close", value: null }], address);
  }
}

/** A result again, as its link tells it; false where the link is damaged. */
async function reproduce(text) {
  const told = link.decode(text);
  const settingsOf = told?.settings ?? {};
  const doc = told && state.restored({
    lines: told.sentences.map((sentence, i) => ({ ...state.blank(), text: sentence ?? "", start: String(told.starts?.[i + 1] ?? ""), tag: told.arc?.[i] ?? null })),
    seed: told.seed,
    candidates: settingsOf.candidates,
    temperature: settingsOf.temperature,
    model: told.model === store.ui.model ? null : told.model,
    people: told.people,
    ...settingsOf.voice,
    notes: Array.isArray(told.notes) ? told.notes.join("\n") : "",
  });
  if (!doc) {
    warn("loading", "This link is damaged: part of it may be missing. Ask for it again.");
    return false;
  }
  if (doc.model !== null && !store.ui.models.some((one) => one.name === doc.model)) {
    warn("loading", `The link was made with the model “${doc.model}”, which is not installed here. The studio’s own model gives other candidates.`);
    doc.model = null;
  }
  if (!(await saving.begin(doc, "", `#r=${text}`))) return false;
  const body = { ...filling.request(doc) };
  for (const key of ["samples", "sampler", "top_k"]) if (settingsOf[key] !== undefined) body[key] = settingsOf[key];
  filling.repeat(body);
  return true;
}

/** The story of the address; without one the last, or a new one where the reader went back to before the first. */
async function follow(event) {
  const told = new URLSearchParams(location.hash.slice(1));
  if (told.has("r")) return reproduce(told.get("r"));
  if (told.has("s")) return saving.open(Number(told.get("s")), Number(told.get("b")) || null, false);
  if (event) return saving.begin();
  return told.has("new") ? undefined : resume(saving.open);
}

async function start() {
  // Not by the address, which names the story.
  document.querySelector(".skip").addEventListener("click", (event) => (event.preventDefault(), $("story-text").focus()));
  for (const button of document.querySelectorAll("[data-icon]")) button.prepend(icon(button.dataset.icon));
  editor.start();
  arc.start();
  arc.heads();
  verbs.start({ why: why.toggle });
  why.start();
  search.start();
  cards.start({ copyLink });
  cards.controls(filling);
  tray.start();
  filling.onArrival((batch) => tray.gather(batch));
  settings.start();
  cast.start();
  header();
  shapes();
  theme();
  examples();
  keys();
  files.start();
  stories.start();
  branches.start();
  try {
    const [{ models }, { model }] = await Promise.all([api.models(), api.health()]);
    settings.offer(models, model);
  } catch (error) {
    warn("loading", error.message, [{ label: "Try again", act: () => location.reload() }]);
  }
  filling.watchPosterior();
  await follow();
  saving.start();
  addEventListener("popstate", follow);
  document.documentElement.dataset.ready = "yes";
}

start();
