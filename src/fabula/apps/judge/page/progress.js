// The runner's page: who has judged how much. It looks again every half minute.

import { $, ask, h, trouble } from "./web.js";

const AGAIN = 30_000;
let key = new URLSearchParams(location.hash.slice(1)).get("key") ?? "";
let timer = null;

async function open() {
  clearTimeout(timer);
  trouble("");
  let progress;
  try {
    progress = await ask("GET", "/api/judge/progress", undefined, { "X-Fabula-Curator": key });
  } catch (refusal) {
    const shut = refusal.status === 403;
    $("enter").hidden = !shut;
    $("sheets").hidden = shut;
    if (key || !shut) trouble(refusal.message);
    if (shut) $("key").focus();
    else timer = setTimeout(open, AGAIN);
    return;
  }
  $("enter").hidden = true;
  $("sheets").hidden = false;
  $("progress").textContent = `${progress.judged} of ${progress.wanted} judgements`;
  $("share").max = Math.max(1, progress.wanted);
  $("share").value = progress.judged;
  const few = progress.open.slice(0, 10).map(({ pair, people }) => `${pair} (${people})`).join(", ");
  const more = progress.open.length > 10 ? `, and ${progress.open.length - 10} more` : "";
  $("open").textContent = progress.open.length ? `Pairs that still want people, and how many they have: ${few}${more}.` : "Every pair has all its people.";
  $("people").replaceChildren(...progress.annotators.map(row));
  timer = setTimeout(open, AGAIN);
}

function row({ code, judged, checks, passed, seconds, last }) {
  const when = last === null ? "not yet" : new Date(1000 * last).toLocaleString();
  return h("tr", {}, h("th", { scope: "row" }, code), ...[judged, checks ? `${passed} of ${checks}` : "none yet", seconds.toFixed(0), when].map((text) => h("td", {}, String(text))));
}

$("enter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  open();
});

open();
