// The cast and the notes as they are sent: named people, notes that say something.

import { WORDS } from "./schema.js"; // of one sentence that a model reads, at most: of a longer one the last
import { paragraphs } from "./split.js";

/** Notes that are sent, at most: one place stays for an example. */
const NOTES = 19;

export const sendable = (text) => text.trim().split(/\s+/).slice(-WORDS).join(" ");

export const named = (doc) => doc.people.filter((person) => person.name.trim()).map(({ name, pronoun, about }) => ({ name: name.trim(), pronoun, about: about.trim() }));

export const rowsOf = (doc) => doc.notes.split("\n").map((row) => row.trim()).filter(Boolean);

/** A long row falls into its sentences. */
export const noted = (doc) => paragraphs(doc.notes).flat().filter(Boolean).map(sendable).slice(0, NOTES);
