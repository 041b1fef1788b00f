// How candidates are drawn: how many, how bold, from which seed, by which model.

import { $, h, keep } from "./dom.js";
import { note } from "./messages.js";
import { STORY } from "./schema.js";
import { MOST, resize, set } from "./state.js";
import { change, show, store, subscribe } from "./store.js";

/** How the text sounds: for models that can follow it. */
const VOICE = ["tense", "person", "length"];

export function start() {
  for (const name of ["candidates", "seed"]) typed($(name), STORY[name].minimum, STORY[name].maximum, (value) => change(set, { [name]: value }));
  // A length counts when it is finished: on the way to 12 stands a 1.
  $("count-of-lines").addEventListener("change", () => {
    const count = Number($("count-of-lines").value);
    const fits = Number.isInteger(count) && count >= 1 && count <= MOST;
    if (fits) change(resize, count);
    $("count-of-lines").value = String(store.doc.lines.length);
    if (!fits) note(`A story has 1 to ${MOST} sentences.`);
    else if (store.doc.lines.length > count) note("Sentences that have words stay: remove them yourself.");
  });
  $("boldness").addEventListener("change", () => {
    const { value } = $("boldness");
    change(set, { temperature: value === "" ? null : Number(value) });
  });
  for (const name of VOICE) $(name).addEventListener("change", () => change(set, { [name]: $(name).value || null }));
  $("dice").addEventListener("click", () => change(set, { seed: Math.floor(Math.random() * 1_000_000) }));
  $("model").addEventListener("change", () => {
    const { value } = $("model");
    change(set, { model: value === store.ui.model ? null : value });
  });
  subscribe(render);
}

/** Every whole number that is typed and allowed counts at once; what is not is put right when the field is left. */
function typed(field, least, most, use) {
  field.addEventListener("input", () => {
    const value = Number(field.value);
    if (field.value.trim() && Number.isInteger(value) && value >= least && value <= most) use(value);
  });
  field.addEventListener("blur", () => render(store.doc, store.ui));
}

/** What the server can do. */
export function offer(models, model) {
  show({ models: models.filter((one) => !one.damaged), model });
}

function render(doc, ui) {
  for (const name of ["candidates", "seed"])
    if (document.activeElement !== $(name)) keep($(name), { value: String(doc[name]) });
  if (document.activeElement !== $("count-of-lines")) keep($("count-of-lines"), { value: String(doc.lines.length) });
  const bold = $("boldness");
  const value = doc.temperature === null ? "" : String(doc.temperature);
  if (![...bold.options].some((option) => option.value === value)) bold.append(h("option", { value }, value));
  keep(bold, { value });
  const name = ui.models.some((one) => one.name === doc.model) ? doc.model : ui.model;
  const { labels, factors, settings, voice = [] } = ui.models.find((one) => one.name === name) ?? {};
  for (const part of VOICE) keep($(part), { value: doc[part] ?? "", disabled: !voice.includes(part), title: voice.includes(part) ? "" : "The model that is chosen cannot follow this" });
  const usual = (settings?.smc ?? settings?.rerank)?.temperature;
  const asUsual = [...bold.options].find((option) => option.value === "");
  keep(asUsual, { textContent: usual === undefined ? "as usual" : `as usual (${usual})` });
  if (labels?.length && labels.join() !== ui.labels.join()) ui.labels = labels;
  ui.factors = factors ?? null;
  $("model-field").hidden = ui.models.length < 2;
  const offered = ui.models.map((one) => one.name).join("\n");
  if ($("model").dataset.of !== offered) {
    $("model").dataset.of = offered;
    $("model").replaceChildren(...ui.models.map((one) => h("option", { value: one.name }, one.name)));
  }
  keep($("model"), { value: name });
}
