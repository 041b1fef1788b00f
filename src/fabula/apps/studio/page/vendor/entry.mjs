export { Schema, Fragment, Slice } from "prosemirror-model";
export { EditorState, Plugin, PluginKey, TextSelection, Selection } from "prosemirror-state";
export { EditorView, Decoration, DecorationSet } from "prosemirror-view";
export { history, undo, redo, undoDepth, redoDepth, closeHistory } from "prosemirror-history";
export { keymap } from "prosemirror-keymap";
export { baseKeymap } from "prosemirror-commands";
