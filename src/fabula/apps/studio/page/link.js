// A link that reproduces a result: everything the sampler was told, in the address after `#r=`, which no server sees.

const KEYS = ["model", "seed", "settings", "sentences", "arc", "starts", "people", "notes"];

export function encode(recipe) {
  const bytes = new TextEncoder().encode(JSON.stringify(Object.fromEntries(KEYS.map((key) => [key, recipe[key] ?? null]))));
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** What a link says; null where it is damaged. Values are checked where they are used, and by the server. */
export function decode(text) {
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const recipe = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(binary, (c) => c.charCodeAt(0))));
    const lines = recipe.sentences;
    const sound =
      Array.isArray(lines) && lines.every((line) => line === null || typeof line === "string") &&
      (recipe.arc === null || (Array.isArray(recipe.arc) && recipe.arc.length === lines.length)) &&
      Number.isSafeInteger(recipe.seed);
    return sound ? recipe : null;
  } catch {
    return null;
  }
}
