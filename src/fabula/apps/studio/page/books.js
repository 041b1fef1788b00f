// A story as a book: DOCX for word processors, EPUB for readers, prose for the screen and the printer.

import { paragraphsOf } from "./formats.js";
import { paragraphs } from "./split.js";
import { unzip, zip } from "./zip.js";

const HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n';
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
/** As XML text; what XML cannot hold is left out. */
// eslint-disable-next-line no-control-regex
const xml = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "").replace(/[&<>"]/g, (sign) => ENTITIES[sign]);

/** The paragraphs that have words. */
export const prose = (doc) => paragraphsOf(doc).map((group) => group.join(" "));

export const wordCount = (doc) => prose(doc).join(" ").split(/\s+/).filter(Boolean).length;

export function docx(doc, title) {
  const paragraph = (text, style = "") => `<w:p>${style}<w:r><w:t xml:space="preserve">${xml(text)}</w:t></w:r></w:p>`;
  const heading = '<w:pPr><w:spacing w:after="240"/><w:rPr><w:b/><w:sz w:val="36"/></w:rPr></w:pPr>';
  const titled = `<w:p>${heading}<w:r><w:rPr><w:b/><w:sz w:val="36"/></w:rPr><w:t xml:space="preserve">${xml(title)}</w:t></w:r></w:p>`;
  const parts = "http://schemas.openxmlformats.org/package/2006";
  const office = "http://schemas.openxmlformats.org/officeDocument/2006";
  const word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml";
  return zip([
    ["[Content_Types].xml", `${HEAD}<Types xmlns="${parts}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="${word}"/></Types>`],
    ["_rels/.rels", `${HEAD}<Relationships xmlns="${parts}/relationships"><Relationship Id="rId1" Type="${office}/relationships/officeDocument" Target="word/document.xml"/></Relationships>`],
    ["word/document.xml", `${HEAD}<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>${titled}${prose(doc).map((text) => paragraph(text)).join("")}<w:sectPr/></w:body></w:document>`],
  ]);
}

export function epub(doc, title) {
  const page = (head, body) => `${HEAD}<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en"><head><title>${xml(head)}</title></head><body>${body}</body></html>`;
  const day = new Date().toISOString().replace(/\.\d+/, "");
  const id = `urn:uuid:${crypto.randomUUID?.() ?? `fabula-${Date.now()}`}`;
  return zip([
    ["mimetype", "application/epub+zip"], // first, so that a reader knows it by its beginning
    ["META-INF/container.xml", `${HEAD}<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="book/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>`],
    ["book/content.opf", `${HEAD}<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">${id}</dc:identifier><dc:title>${xml(title)}</dc:title><dc:language>en</dc:language><meta property="dcterms:modified">${day}</meta></metadata><manifest><item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/><item id="story" href="story.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="story"/></spine></package>`],
    ["book/nav.xhtml", page(title, `<nav epub:type="toc"><h1>Contents</h1><ol><li><a href="story.xhtml">${xml(title)}</a></li></ol></nav>`)],
    ["book/story.xhtml", page(title, `<h1>${xml(title)}</h1>${prose(doc).map((text) => `<p>${xml(text)}</p>`).join("")}`)],
  ]);
}

function parsed(text) {
  const read = (type) => new DOMParser().parseFromString(text, type);
  const xml = read("application/xml");
  return xml.querySelector("parsererror") ? read("text/html") : xml; // names such as &nbsp; are HTML's
}
const all = (node, name) => [...node.getElementsByTagNameNS("*", name)];

/** The paragraphs of sentences of a word processor's file; its first heading is the title. */
export async function fromDocx(buffer) {
  const text = (await unzip(buffer)).get("word/document.xml");
  if (!text) throw new Error("there is no Word document in it");
  const rows = all(parsed(await text()), "p").map((node) => ({
    text: [...node.getElementsByTagNameNS("*", "*")].map((part) => (part.localName === "t" ? part.textContent : ["br", "cr", "tab"].includes(part.localName) ? " " : "")).join(""),
    heading: all(node, "pStyle").some((style) => /^(?:title|heading)/i.test(style.getAttribute("w:val") ?? "")) || all(node, "sz").some((size) => Number(size.getAttribute("w:val")) >= 32),
  }));
  return titled(rows);
}

/** The same of an e-book, in the order of its spine. */
export async function fromEpub(buffer) {
  const files = await unzip(buffer);
  const read = async (name) => parsed(await (files.get(name) ?? (() => { throw new Error("a part of this e-book is missing"); }))());
  const path = all(await read("META-INF/container.xml"), "rootfile")[0]?.getAttribute("full-path") ?? "";
  const book = await read(path);
  const names = Object.fromEntries(all(book, "item").map((item) => [item.getAttribute("id"), item.getAttribute("href")]));
  const rows = [];
  for (const item of all(book, "itemref")) {
    const page = await read(path.replace(/[^/]*$/, "") + decodeURIComponent(names[item.getAttribute("idref")] ?? ""));
    rows.push(...[...page.querySelectorAll("h1, h2, h3, p")].map((node) => ({ text: node.textContent, heading: node.localName !== "p" })));
  }
  return titled(rows);
}

function titled(rows) {
  const first = rows.findIndex((row) => row.text.trim());
  const title = rows[first]?.heading ? rows[first].text.trim().slice(0, 200) : "";
  return { title, groups: rows.filter((_, at) => !title || at !== first).flatMap(({ text }) => paragraphs(text.replace(/\s+/g, " "))) };
}
