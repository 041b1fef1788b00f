// How candidates are drawn: how many, how bold, from which seed, by which model.

import { $, h, keep } from "./dom.js";
import { set } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

export function start() {
  $("candidates").addEventListener("change", () => {
    const count = Math.min(10, Math.max(1, Math.round(Number($("candidates").value)) || 3));
    $("candidates").value = count;
    change(set, { candidates: count });
  });
  $("boldness").addEventListener("change", () => {
    const { value } = $("boldness");
    change(set, { temperature: value === "" ? null : Number(value) });
  });
  $("seed").addEventListener("change", () => {
    const seed = Math.round(Number($("seed").value));
    change(set, { seed: Number.isSafeInteger(seed) && seed >= 0 ? seed : 0 });
    $("seed").value = store.doc.seed;
  });
  $("dice").addEventListener("click", () => change(set, { seed: Math.floor(Math.random() * 1_000_000) }));
  $("model").addEventListener("change", () => {
    const { value } = $("model");
    change(set, { model: value === store.ui.model ? null : value });
  });
  subscribe(render);
}

/** What the server can do. */
export function offer(models, model) {
  show({ models: models.filter((one) => !one.damaged), model });
}

function render(doc, ui) {
  keep($("candidates"), { value: String(doc.candidates) });
  keep($("seed"), { value: String(doc.seed) });
  const bold = $("boldness");
  const value = doc.temperature === null ? "" : String(doc.temperature);
  if (![...bold.options].some((option) => option.value === value)) bold.append(h("option", { value }, value));
  keep(bold, { value });
  const name = doc.model ?? ui.model;
  const labels = ui.models.find((one) => one.name === name)?.labels;
  if (labels?.length && labels.join() !== ui.labels.join()) ui.labels = labels;
  $("model-field").hidden = ui.models.length < 2;
  const offered = ui.models.map((one) => one.name).join("\n");
  if ($("model").dataset.of !== offered) {
    $("model").dataset.of = offered;
    $("model").replaceChildren(...ui.models.map((one) => h("option", { value: one.name }, one.name)));
  }
  keep($("model"), { value: name });
}
