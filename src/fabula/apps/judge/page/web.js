// Asking the server, and making elements. Texts go in as text nodes: nothing that a system wrote is read as markup.

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The answer to a request; a Refusal with the server's own words, or with status 0 where nobody answers. */
export async function ask(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Refusal(0, "The server does not answer. Nothing is lost: try again in a moment.");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  throw new Refusal(response.status, answer?.error?.message ?? `The server answered with ${response.status}.`);
}

/** An element: h("p", {class: "soft"}, "words"). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export const $ = (id) => document.getElementById(id);

/** A row of radio buttons drawn as keys. */
export function keys(name, values, chosen) {
  return h(
    "div",
    { class: "keys" },
    ...values.map(([value, label, spoken]) =>
      h(
        "label",
        {},
        h("input", { type: "radio", name, value, "aria-label": spoken ?? false, checked: value === chosen }),
        h("span", { "aria-hidden": spoken ? "true" : false }, label),
      ),
    ),
  );
}

/** What is chosen among radio buttons of a name, null where nothing is. */
export const chosen = (form, name) => form.querySelector(`input[name="${name}"]:checked`)?.value ?? null;

/** A line of trouble on top of the page, none for an empty one. */
export function trouble(words) {
  const line = $("trouble");
  line.textContent = words;
  line.hidden = !words;
}
