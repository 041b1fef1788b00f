// Copies in this browser of what the server has not acknowledged: they survive a closed window, a crash, an absent server.

const PREFIX = "fabula.unsaved.";

/** Told apart from other windows with new stories; the same after a reload. */
const tab = (() => {
  try {
    const known = sessionStorage.getItem("fabula.tab") ?? Math.random().toString(36).slice(2);
    sessionStorage.setItem("fabula.tab", known);
    return known;
  } catch {
    return "only";
  }
})();

export const nameOf = (story, branch) => PREFIX + (story ? `${story.id}.${branch.id}` : `new.${tab}`);

function attempt(work) {
  try {
    return work();
  } catch {
    return null; // a browser that keeps nothing, or is full: the server's copy is the only one then
  }
}

/** `copy`: {title, state, revision}. */
export const keep = (name, copy) => attempt(() => localStorage.setItem(name, JSON.stringify(copy)));
export const forget = (name) => attempt(() => localStorage.removeItem(name));
export const found = (name) => attempt(() => JSON.parse(localStorage.getItem(name)));

/** A copy under a name of its own. */
export const park = (copy) => keep(`${PREFIX}new.${Math.random().toString(36).slice(2)}`, copy);

/** New stories of other windows that no server has: [name, copy]. */
export const orphans = () =>
  attempt(() =>
    Object.keys(localStorage)
      .filter((name) => name.startsWith(`${PREFIX}new.`) && name !== nameOf(null))
      .map((name) => [name, found(name)])
      .filter(([, copy]) => copy),
  ) ?? [];

/** The story and branch that this browser worked on last: [story, branch], or null. */
const LAST = "fabula.last";
export const remember = (story, branch) => attempt(() => localStorage.setItem(LAST, JSON.stringify([story.id, branch.id])));
export const last = () => found(LAST);
