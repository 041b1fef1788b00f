// What a story is called.

/** The title that was given, else how the story begins. */
export function titled(doc, title) {
  if (title.trim()) return title.trim().slice(0, 200);
  const words = (doc.lines.find((line) => line.text.trim())?.text ?? "").trim().split(/\s+/);
  const begin = words.slice(0, 7).join(" ");
  return (words.length > 7 ? `${begin.replace(/[.,;:!?]+$/, "")} …` : begin).slice(0, 200) || "Untitled";
}
