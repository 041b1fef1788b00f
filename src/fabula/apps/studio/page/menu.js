// A button that opens a short list of actions, after the ARIA menu-button pattern: arrows, Home, End, Escape, first letters.

import { h } from "./dom.js";

let opened = null;

export function close(focus = false) {
  if (!opened) return;
  const { button, list } = opened;
  opened = null;
  button.setAttribute("aria-expanded", "false");
  list.remove();
  if (focus) button.focus();
}

document.addEventListener("pointerdown", (event) => {
  if (opened && !opened.list.contains(event.target) && !opened.button.contains(event.target)) close();
});

/** `items()` says the entries when it opens: {label, hint, act, disabled, picture, danger}. */
export function menu(button, items) {
  button.setAttribute("aria-haspopup", "menu");
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => (opened?.button === button ? close() : open(button, items())));
  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    event.stopPropagation();
    open(button, items());
  });
  return button;
}

function open(button, items) {
  close();
  const entries = items.map(({ label, hint, act, disabled, picture, danger, current }) =>
    h(
      "button",
      {
        type: "button",
        role: current === undefined ? "menuitem" : "menuitemradio",
        "aria-checked": current === undefined ? null : String(current),
        tabIndex: -1,
        class: danger ? "danger" : "",
        "aria-disabled": disabled ? "true" : null,
        onclick: () => {
          if (disabled) return;
          close(true);
          act();
        },
      },
      picture ?? null,
      h("span", { class: "label" }, label),
      hint ? h("span", { class: "hint" }, hint) : null,
    ),
  );
  const list = h("div", { role: "menu", class: "menu", "aria-label": button.getAttribute("aria-label") ?? button.textContent.trim() }, entries);
  list.addEventListener("keydown", (event) => steer(event, entries));
  list.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !list.contains(event.relatedTarget) && event.relatedTarget !== button) close();
  });
  // A modal dialog has everything else behind it.
  (button.closest("dialog") ?? document.body).append(list);
  opened = { button, list };
  button.setAttribute("aria-expanded", "true");
  position(button, list);
  entries[0]?.focus();
}

/** Below the button where there is room, else above; never outside the window. */
function position(button, list) {
  const at = button.getBoundingClientRect();
  const size = list.getBoundingClientRect();
  const below = at.bottom + 4 + size.height <= innerHeight || at.top - 4 - size.height < 0;
  const fixed = button.closest("dialog") !== null;
  list.style.position = fixed ? "fixed" : "";
  list.style.top = `${(fixed ? 0 : scrollY) + (below ? at.bottom + 4 : at.top - 4 - size.height)}px`;
  list.style.left = `${(fixed ? 0 : scrollX) + Math.max(8, Math.min(at.right - size.width, innerWidth - size.width - 8))}px`;
}

function steer(event, entries) {
  const at = entries.indexOf(document.activeElement);
  const letter = event.key.length === 1 ? event.key.toLowerCase() : null;
  const to = {
    ArrowDown: (at + 1) % entries.length,
    ArrowUp: (at - 1 + entries.length) % entries.length,
    Home: 0,
    End: entries.length - 1,
  }[event.key];
  if (event.key === "Escape") close(true);
  else if (event.key === "Tab") close();
  else if (to !== undefined) entries[to].focus();
  else if (letter && letter !== " ") {
    const turned = [...entries.slice(at + 1), ...entries.slice(0, at + 1)];
    turned.find((entry) => entry.querySelector(".label").textContent.toLowerCase().startsWith(letter))?.focus();
    event.stopPropagation();
    return;
  } else return;
  if (event.key !== "Tab") event.preventDefault();
  event.stopPropagation();
}
