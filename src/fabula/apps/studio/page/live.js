// Windows of one browser tell each other what they saved.

const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("fabula.saved") : null;

/** `branch` as it is on the server now. */
export const announce = (story, { id, revision }) => channel?.postMessage({ story: story.id, branch: id, revision });

/** Calls with {story, branch, revision} whenever another window has saved. */
export function listen(heard) {
  channel?.addEventListener("message", ({ data }) => heard(data));
}
