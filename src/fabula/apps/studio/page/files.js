// Export and import.

import { pointOf } from "./arc.js";
import * as books from "./books.js";
import { $, h, pictured } from "./dom.js";
import { fromJson, fromMarkdown, fromParagraphs, fromText, toJson, toMarkdown, toText } from "./formats.js";
import { partOf } from "./lanes.js";
import { menu } from "./menu.js";
import { clear, note, warn } from "./messages.js";
import * as picture from "./picture.js";
import * as saving from "./saving.js";
import { store } from "./store.js";

const LARGEST = 4_000_000;

function download(blob, ending) {
  const name = saving.titleOf(store.doc).toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "story";
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: `${name}.${ending}` }).click();
  // The browser reads it after the click has returned.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const asFile = (text, ending, type) => download(new Blob([text], { type: `${type};charset=utf-8` }), ending);
const title = () => saving.titleOf(store.doc);
/** The moods alone: the picture has one curve. */
const moods = ({ doc, ui }) => ({ ...doc, lines: doc.lines.map((line) => ({ ...line, tag: partOf(line.tag, 0, ui.factors?.length ?? 1) })) });
const drawing = () => picture.svg(moods(store), title(), store.ui.labels, store.ui.posterior, pointOf);

export function start() {
  menu($("export"), () => [
    { label: "Text", hint: ".txt", act: () => asFile(toText(store.doc), "txt", "text/plain") },
    { label: "Markdown", hint: ".md", act: () => asFile(toMarkdown(store.doc, title()), "md", "text/markdown") },
    { label: "Word document", hint: ".docx", act: () => download(books.docx(store.doc, title()), "docx") },
    { label: "E-book", hint: ".epub", act: () => download(books.epub(store.doc, title()), "epub") },
    { label: "Read or print…", act: reading },
    { label: "JSON, with everything", hint: ".json", act: () => asFile(toJson(store.doc, title()), "json", "application/json") },
    { label: "Picture of the arc", hint: ".svg", act: () => asFile(picture.svgText(drawing()), "svg", "image/svg+xml") },
    { label: "Picture of the arc", hint: ".png", act: async () => download(await picture.png(drawing(), toJson(store.doc, title())), "png") },
    { label: "Import a file…", act: () => $("import").click() },
  ]);
  // What is printed is the text and nothing of the page, whatever is open.
  addEventListener("beforeprint", () => $("print").replaceChildren(...article()));
  $("import").addEventListener("change", async () => {
    const [file] = $("import").files;
    if (file) await read(file);
    $("import").value = "";
  });
}

/** The story alone: paragraphs, under a title where one was given. */
const article = () => [
  store.ui.title.trim() ? h("h2", {}, store.ui.title.trim()) : null,
  ...books.prose(store.doc).map((text) => h("p", {}, text)),
].filter(Boolean);

/** The story as it would be read. */
function reading() {
  const text = article();
  const dialog = h(
    "dialog",
    { class: "reading", "aria-label": "Reading view" },
    h("div", { class: "dialog-head" }, h("button", { type: "button", onclick: () => print() }, "Print"), pictured("close", "Close", { onclick: () => dialog.close() })),
    h("article", { tabIndex: 0, role: "region", "aria-label": "The story" }, text.length ? text : h("p", {}, "There is nothing to read yet.")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** A story out of a file of any of the exported kinds, as a new story. */
async function read(file) {
  clear("import");
  try {
    if (file.size > LARGEST) throw new Error("it is larger than 4 MB");
    const { title: found, doc } = await parse(file);
    if (!(await saving.begin(doc, found))) return;
    note(`“${saving.titleOf(doc, found)}” was imported as a new story.`);
  } catch (error) {
    warn("import", `${file.name} was not imported: ${error.message}.`);
  }
}

async function parse(file) {
  const ending = file.name.toLowerCase().split(".").pop();
  if (ending === "png") return fromJson(picture.storyInPng(await file.arrayBuffer()));
  if (ending === "docx" || ending === "epub") {
    const { title: heading, groups } = await (ending === "docx" ? books.fromDocx : books.fromEpub)(await file.arrayBuffer());
    return fromParagraphs(groups, heading);
  }
  const text = await file.text();
  if (ending === "svg") return fromJson(picture.storyInSvg(text));
  if (ending === "json") return fromJson(text);
  if (ending === "md" || ending === "markdown") return fromMarkdown(text, store.ui.labels, store.ui.factors);
  if (text.includes("\0")) throw new Error("it is no text");
  return fromText(text);
}
