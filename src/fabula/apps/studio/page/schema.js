// Written by schema/make.py from fabula.apps.studio.document: change the story's fields there, not here.

export const STORY = {
  lines: {"type": "array", "minItems": 1, "maxItems": 400, "nullable": false},
  seed: {"type": "integer", "minimum": 0, "maximum": 9007199254740991, "nullable": false, "default": 0},
  candidates: {"type": "integer", "minimum": 1, "maximum": 10, "nullable": false, "default": 3},
  temperature: {"type": "number", "minimum": 0.05, "maximum": 5, "nullable": true, "default": null},
  model: {"type": "string", "maxLength": 200, "nullable": true, "default": null},
  tense: {"type": "string", "enum": ["past", "present"], "nullable": true, "default": null},
  person: {"type": "string", "enum": ["first", "third"], "nullable": true, "default": null},
  length: {"type": "string", "enum": ["short", "medium", "long"], "nullable": true, "default": null},
  people: {"type": "array", "maxItems": 20, "nullable": false, "default": []},
  notes: {"type": "string", "maxLength": 4000, "nullable": false, "default": ""},
  tray: {"type": "array", "maxItems": 60, "nullable": false, "default": []},
};
export const LINE = {
  id: {"type": "string", "maxLength": 40, "nullable": false, "default": ""},
  text: {"type": "string", "maxLength": 4000, "nullable": false, "default": ""},
  write: {"type": "boolean", "nullable": false, "default": false},
  locked: {"type": "boolean", "nullable": false, "default": false},
  start: {"type": "string", "maxLength": 1000, "nullable": false, "default": ""},
  tag: {"type": "string", "maxLength": 100, "nullable": true, "default": null},
  paragraph: {"type": "boolean", "nullable": false, "default": false},
};
export const PERSON = {
  name: {"type": "string", "maxLength": 60, "nullable": false},
  pronoun: {"type": "string", "enum": ["he", "she", "they"], "nullable": true, "default": null},
  about: {"type": "string", "maxLength": 200, "nullable": false, "default": ""},
};
export const CONTENT_FIELDS = ["lines", "people", "notes"];
export const SAVED_FIELDS = ["lines", "seed", "candidates", "temperature", "model", "tense", "person", "length", "people", "notes", "tray"];
export const SENTENCES = 64;
export const WORDS = 60;
