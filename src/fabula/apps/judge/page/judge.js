// The annotator's page: a code, then pair after pair, then thanks.

import { draft, forget, keep, Watch } from "./drafts.js";
import { $, ask, chosen, h, keys, trouble } from "./web.js";

const SIDES = ["left", "right"];
const NAMES = { left: "Story A", right: "Story B" };
const RATINGS = [
  ["0", "0", "0, does not follow at all"],
  ["1", "1", "1, hardly follows"],
  ["2", "2", "2, mostly follows"],
  ["3", "3", "3, follows well"],
];
const form = $("task");
const page = { study: null, code: null, item: null, watch: null, count: { left: 0, right: 0 } };

function only(id) {
  for (const part of ["enter", "task", "thanks"]) $(part).hidden = part !== id;
}

// --- the code --------------------------------------------------------------------------------------------------------

function codeInAddress() {
  const named = new URLSearchParams(location.search).get("code");
  return named ?? new URLSearchParams(location.hash.slice(1)).get("code");
}

function remembered(code) {
  try {
    if (code !== undefined) sessionStorage.setItem("fabula-judge", code);
    return sessionStorage.getItem("fabula-judge");
  } catch {
    return null;
  }
}

async function begin(code) {
  page.code = code.trim();
  await next();
  if (page.code !== null) remembered(page.code);
}

$("enter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  begin($("code").value);
});

// --- one pair --------------------------------------------------------------------------------------------------------

async function next() {
  trouble("");
  let answer;
  try {
    answer = await ask("POST", "/api/judge/tasks", { code: page.code });
  } catch (refusal) {
    trouble(refusal.message);
    if (page.item === null && refusal.status !== 0) {
      page.code = null;
      only("enter");
      $("code").focus();
    } else if (page.item === null) {
      only("enter");
      $("code").value = page.code;
    }
    return;
  }
  page.study = answer.study;
  page.code = answer.code;
  $("not-me").hidden = false;
  if (answer.task === null) {
    page.item = null;
    const many = answer.answered === 1 ? "1 pair" : `${answer.answered} pairs`;
    $("progress").textContent = `${page.code} · ${many} judged`;
    $("thanks-text").textContent = answer.answered
      ? `You have judged ${many}, and there is nothing left for you to do.`
      : "Every pair has been judged already. There is nothing left for you to do.";
    only("thanks");
    $("thanks").querySelector("h2").focus();
    return;
  }
  show(answer);
}

function show(answer) {
  const { task } = answer;
  const saved = draft({ ...page, item: task.item });
  page.watch?.stop();
  page.item = task.item;
  page.watch = new Watch(Number(saved.seconds) || 0);
  const rows = 1 + Math.max(task.left.length, task.right.length);
  $("stories").replaceChildren(...SIDES.map((side) => story(side, task[side], rows, saved.ratings ?? {})));
  for (const input of form.querySelectorAll("input[name=choice]")) input.checked = input.value === saved.choice;
  for (const part of form.querySelectorAll(".wanted")) part.classList.remove("wanted");
  $("missing").textContent = "";
  $("progress").textContent = `${page.code} · pair ${answer.answered + 1} · ${answer.ahead === 1 ? "the last" : `${answer.ahead} to go`}`;
  $("guide").open = answer.answered === 0 && !saved.ratings;
  only("task");
  window.scrollTo(0, 0);
  $("stories").querySelector("h2").focus({ preventScroll: true });
}

function story(side, sentences, rows, ratings) {
  page.count[side] = sentences.length;
  const lines = sentences.map((text, place) =>
    h("li", { class: "line" }, h("p", { class: "text" }, text), ...(place ? [rate(side, place + 1, text, ratings)] : [])),
  );
  const made = h(
    "section",
    { class: "story", "aria-labelledby": `name-${side}` },
    h("h2", { id: `name-${side}`, tabindex: "-1" }, NAMES[side]),
    h("ol", {}, ...lines),
  );
  made.style.gridRow = `span ${rows}`;
  return made;
}

function rate(side, number, text, ratings) {
  const name = `${side}_${number}`;
  return h(
    "fieldset",
    { class: "rate", id: name },
    h("legend", { class: "heard" }, `${NAMES[side]}, sentence ${number}: how well does it follow from what came before?`),
    h("span", { class: "end", "aria-hidden": "true" }, "not at all"),
    keys(name, RATINGS, ratings[name]),
    h("span", { class: "end", "aria-hidden": "true" }, "well"),
  );
}

// --- answers ---------------------------------------------------------------------------------------------------------

const names = () =>
  SIDES.flatMap((side) => Array.from({ length: page.count[side] - 1 }, (_, place) => `${side}_${place + 2}`));

function noted() {
  const ratings = {};
  for (const name of names()) {
    const value = chosen(form, name);
    if (value !== null) ratings[name] = value;
  }
  return { ratings, choice: chosen(form, "choice") };
}

const store = () => page.item !== null && keep(page, { ...noted(), seconds: page.watch.seconds });

form.addEventListener("change", (event) => {
  event.target.closest("fieldset")?.classList.remove("wanted");
  store();
});
window.addEventListener("pagehide", store);

// Keys 0 to 3 rate the sentence in focus and go on to the next one; from a story's name, to its first.
form.addEventListener("keydown", (event) => {
  if (!/^[0-3]$/.test(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
  const groups = [...form.querySelectorAll("fieldset.rate"), $("choice")];
  const at = event.target.closest("fieldset.rate") ?? event.target.closest(".story")?.querySelector("fieldset.rate");
  const input = at?.querySelector(`input[value="${event.key}"]`);
  if (!input) return;
  event.preventDefault();
  input.checked = true;
  input.dispatchEvent(new Event("change", { bubbles: true }));
  const after = groups[groups.indexOf(at) + 1];
  (after.querySelector("input:checked") ?? after.querySelector("input")).focus();
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { ratings, choice } = noted();
  const missing = names().filter((name) => !(name in ratings));
  const groups = [...missing.map($), ...(choice === null ? [$("choice")] : [])];
  if (groups.length) {
    for (const group of groups) group.classList.add("wanted");
    const rest = missing.length ? `${missing.length} ${missing.length === 1 ? "sentence has" : "sentences have"} no rating yet` : "";
    $("missing").textContent = [rest, choice === null ? "say which story is better" : ""].filter(Boolean).join("; ");
    groups[0].querySelector("input").focus();
    return;
  }
  const sides = SIDES.map((side) => names().filter((name) => name.startsWith(`${side}_`)).map((name) => Number(ratings[name])));
  const seconds = Math.min(page.watch.seconds, 86400);
  const item = page.item;
  $("send").disabled = true;
  try {
    await ask("POST", "/api/judge/answers", { code: page.code, item, ratings: sides, choice, seconds });
    forget({ ...page, item });
    page.item = null;
    await next();
  } catch (refusal) {
    if (refusal.status === 409) {
      forget({ ...page, item });
      page.item = null;
      await next();
    }
    trouble(refusal.message);
  } finally {
    $("send").disabled = false;
  }
});

// Somebody else's code was remembered here, or came with the link.
$("not-me").addEventListener("click", () => {
  store();
  try {
    sessionStorage.removeItem("fabula-judge");
  } catch {
    // nothing was remembered then
  }
  Object.assign(page, { code: null, item: null });
  history.replaceState(null, "", location.pathname);
  $("not-me").hidden = true;
  $("progress").textContent = "";
  $("code").value = "";
  only("enter");
  $("code").focus();
});

const known = codeInAddress() ?? remembered();
if (known) begin(known);
else {
  only("enter");
  $("code").focus();
}
