export { Schema } from "prosemirror-model";
export { EditorState, Plugin, Selection, TextSelection } from "prosemirror-state";
export { Decoration, DecorationSet, EditorView } from "prosemirror-view";
export { closeHistory, history, redo, redoDepth, undo, undoDepth } from "prosemirror-history";
export { keymap } from "prosemirror-keymap";
export { baseKeymap } from "prosemirror-commands";
