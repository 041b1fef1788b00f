// The cast and the notes as they are sent: named people, notes that say something.

export const named = (doc) => doc.people.filter((person) => person.name.trim()).map(({ name, pronoun, about }) => ({ name: name.trim(), pronoun, about: about.trim() }));

export const noted = (doc) => doc.notes.split("\n").map((note) => note.trim()).filter(Boolean);
