// What the page says to its reader: a bar for what went wrong, a passing note for what went well, a voice for screen readers.

import { $, h, icon } from "./dom.js";

let fading = null;

/** A bar that stays until it is dismissed or `clear`ed; `actions` are {label, act}. One bar for each `about`. */
export function warn(about, message, actions = []) {
  clear(about);
  const bar = h(
    "div",
    { class: "bar", "data-about": about, role: "alert" },
    h("p", {}, message),
    h(
      "div",
      { class: "actions" },
      actions.map(({ label, act }) => h("button", { type: "button", onclick: act }, label)),
      h("button", { type: "button", class: "pictured", "aria-label": "Dismiss", title: "Dismiss", onclick: () => bar.remove() }, icon("close")),
    ),
  );
  $("bars").append(bar);
  return bar;
}

export function clear(about) {
  for (const bar of $("bars").querySelectorAll(".bar")) if (bar.dataset.about === about) bar.remove();
}

/** Whether there is a bar about this. */
export const said = (about) => $("bars").querySelector(`.bar[data-about="${about}"]`) !== null;

/** A note that goes away by itself. */
export function note(message) {
  $("note").textContent = message;
  $("note").hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => {
    $("note").hidden = true;
  }, 4000);
  say(message);
}

/** Only heard. */
export function say(message) {
  $("voice").textContent = message;
}

/**
 * Asks in a dialog; resolves to the chosen value, or null. With `text`, there is a field that begins with it, and the
 * answer of a choice that says yes is what the field holds.
 */
export function ask(question, details, choices, text = null) {
  return new Promise((resolve) => {
    const field = text === null ? null : h("input", { value: text, "aria-labelledby": "ask-title", maxLength: 200 });
    const buttons = choices.map(({ label, value, danger, primary }) =>
      h("button", { type: "button", class: danger ? "danger" : primary ? "primary" : "", onclick: () => finish(value) }, label),
    );
    let answer = null;
    const finish = (value) => {
      answer = value && field ? field.value : value;
      dialog.close();
    };
    const dialog = h(
      "dialog",
      { class: "ask", "aria-labelledby": "ask-title" },
      h("h2", { id: "ask-title" }, question),
      details ? h("p", {}, details) : null,
      field,
      h("div", { class: "actions" }, buttons),
    );
    field?.addEventListener("keydown", (event) => event.key === "Enter" && (event.preventDefault(), finish(true)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    field?.select();
  });
}
