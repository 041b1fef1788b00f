// The curator's page: appendix B's questions about the lowest-rated stories.

import { $, ask, chosen, h, keys, trouble } from "./web.js";

const ANSWERS = [
  ["yes", "yes"],
  ["no", "no"],
];
let key = new URLSearchParams(location.hash.slice(1)).get("key") ?? "";
let answered = new Set();
let total = 0;

const said = (value) => (value === undefined || value === null ? undefined : value ? "yes" : "no");

async function open() {
  trouble("");
  const system = $("system").value;
  const query = system ? `?system=${encodeURIComponent(system)}` : "";
  let answer;
  try {
    answer = await ask("GET", `/api/judge/errors${query}`, undefined, { "X-Fabula-Curator": key });
  } catch (refusal) {
    if (refusal.status === 403 || refusal.status === 0) {
      $("enter").hidden = false;
      $("sheets").hidden = true;
    }
    if (key || refusal.status !== 403) trouble(refusal.message);
    $("key").focus();
    return;
  }
  $("enter").hidden = true;
  $("sheets").hidden = false;
  $("none").hidden = answer.stories.length > 0;
  $("system").replaceChildren(
    ...["", ...answer.systems].map((name) => h("option", { value: name, selected: name === system }, name || "all systems")),
  );
  total = answer.stories.length;
  answered = new Set();
  $("list").replaceChildren(...answer.stories.map(card));
  progress();
}

function progress() {
  $("progress").textContent = total ? `${answered.size} of ${total} filled in` : "";
}

function question(name, words, value) {
  return h("fieldset", {}, h("legend", {}, words), keys(name, ANSWERS, said(value)));
}

function card(story, place) {
  const name = (what) => `${place}-${what}`;
  const { sheet } = story;
  if (sheet) answered.add(place);
  const lines = story.sentences.map((text, number) => {
    const turn = story.written.indexOf(number);
    const asked = turn < 0 ? [] : [question(name(`grammar-${turn}`), `Sentence ${number + 1}: ungrammatical?`, sheet?.ungrammatical[turn])];
    return h("li", { class: "row" }, h("p", { class: "text" }, text), ...asked);
  });
  const note = h("p", { class: "soft", role: "status" }, sheet ? "Kept." : "");
  const made = h(
    "form",
    { class: "sheet card", novalidate: true, "aria-labelledby": name("title"), "data-kept": sheet ? "yes" : "no" },
    h("h2", { id: name("title") }, `Story ${place + 1}: rated ${story.mean.toFixed(2)}`),
    h("ol", {}, ...lines),
    h("div", { class: "row" }, h("p", {}, "The ending is not connected with the sentences before it."), question(name("ending"), "Not connected?", sheet?.ending)),
    h("div", { class: "row" }, h("p", {}, "A sentence is mildly off topic: it suits the story's subject, but not its neighbours."), question(name("topic"), "Off topic?", sheet?.off_topic)),
    h("div", { class: "foot" }, h("button", { type: "submit", class: "main" }, "Keep"), note),
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fields = [...story.written.map((_, turn) => name(`grammar-${turn}`)), name("ending"), name("topic")];
    const empty = fields.find((field) => chosen(made, field) === null);
    if (empty !== undefined) {
      note.textContent = "Every question wants a yes or a no.";
      made.querySelector(`input[name="${empty}"]`).focus();
      return;
    }
    const yes = (field) => chosen(made, field) === "yes";
    const content = {
      pair: story.pair,
      story: story.story,
      ending: yes(name("ending")),
      off_topic: yes(name("topic")),
      ungrammatical: story.written.map((_, turn) => yes(name(`grammar-${turn}`))),
    };
    try {
      await ask("PUT", "/api/judge/errors", content, { "X-Fabula-Curator": key });
      trouble("");
      note.textContent = "Kept.";
      made.dataset.kept = "yes";
      answered.add(place);
      progress();
    } catch (refusal) {
      note.textContent = "Not kept.";
      trouble(refusal.message);
    }
  });
  return made;
}

$("enter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  open();
});
$("system").addEventListener("change", open);
open();
