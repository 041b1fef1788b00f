// The branches of a story as a small tree, and what can be done with them.

import { $, h, pictured } from "./dom.js";
import { menu } from "./menu.js";
import { ask } from "./messages.js";
import * as saving from "./saving.js";
import { store, subscribe } from "./store.js";
import * as versions from "./versions.js";

let drawn = "";

export function start() {
  $("branch").addEventListener("click", () => saving.branch());
  subscribe((_, { branches, branch, story }) => {
    $("branches").hidden = !story;
    const key = JSON.stringify([branches, branch?.id, branch?.name]);
    if (key === drawn) return;
    drawn = key;
    $("tree").replaceChildren(...level(branches, null, branch));
  });
}

function level(all, parent, here) {
  const known = new Set(all.map(({ id }) => id));
  const children = all.filter((branch) => (known.has(branch.parent) ? branch.parent : null) === parent);
  return children.map((branch) => {
    const below = level(all, branch.id, here);
    const current = branch.id === here?.id;
    return h(
      "li",
      {},
      h(
        "div",
        { class: "leaf", "data-current": current ? "yes" : "no" },
        h(
          "button",
          { type: "button", class: "name", "aria-current": current ? "true" : null, onclick: () => current || saving.open(store.ui.story.id, branch.id) },
          branch.name,
        ),
        menu(pictured("more", `More for ${branch.name}`), () => [
          ...(current ? [{ label: "Rename…", act: () => rename(branch) }, { label: "Versions…", act: versions.show }] : [{ label: "Open", act: () => saving.open(store.ui.story.id, branch.id) }]),
          { label: "Delete…", danger: true, disabled: all.length < 2, act: () => remove(branch) },
        ]),
      ),
      below.length ? h("ul", {}, below) : null,
    );
  });
}

async function rename(branch) {
  const name = await ask("Name of this branch", null, [{ label: "Cancel", value: null }, { label: "Rename", value: true, primary: true }], branch.name);
  if (name) await saving.renameBranch(name);
}

async function remove(branch) {
  const sure = await ask(`Delete “${branch.name}”?`, "What was written on it is gone then. Branches that grew from it stay.", [
    { label: "Keep it", value: null },
    { label: "Delete", value: true, danger: true },
  ]);
  if (sure) await saving.deleteBranch(branch.id);
}
