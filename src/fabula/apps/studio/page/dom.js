// Elements made by hand. Texts go in as text nodes: nothing that was typed is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name in element && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: h("button", {type: "button", onclick}, "Fill in"). */
export const h = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);

/** An SVG element. */
export const s = (tag, properties = {}, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

export const $ = (id) => document.getElementById(id);

/** Sets a property or attribute only where it differs: carets and screen readers are left in peace. */
export function keep(element, values) {
  for (const [name, value] of Object.entries(values)) {
    if (name in element) {
      if (element[name] !== value) element[name] = value;
    } else if (value === null) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
}

/** Sets data attributes where they differ. */
export function tell(element, values) {
  for (const [name, value] of Object.entries(values)) if (element.dataset[name] !== value) element.dataset[name] = value;
}

const ICONS = {
  lock: ["M6 11V8a6 6 0 0 1 12 0v3", "M5 11h14v9H5z"],
  unlock: ["M6 11V8a6 6 0 0 1 11.5-2.4", "M5 11h14v9H5z"],
  pen: ["M4 20l1-4L16 5l3 3L8 19z", "M14 7l3 3"],
  again: ["M19 12a7 7 0 1 1-2.2-5.1", "M19 3v5h-5"],
  more: ["M5 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0", "M11 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0", "M17 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0"],
  undo: ["M9 7L4 12l5 5", "M4 12h10a6 6 0 0 1 6 6"],
  redo: ["M15 7l5 5-5 5", "M20 12H10a6 6 0 0 0-6 6"],
  branch: ["M7 4v16", "M7 14c0-4 10-2 10-7", "M17 7V4"],
  moon: ["M20 14.5A8.5 8.5 0 1 1 9.5 4 7 7 0 0 0 20 14.5z"],
  books: ["M5 4h4v16H5z", "M9 4h4v16H9z", "M14.5 4.8l3.8-1 3.2 15-3.8 1z"],
  out: ["M12 4v11", "M8 11l4 4 4-4", "M5 20h14"],
  link: ["M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1.2 1.2", "M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1.2-1.2"],
  find: ["M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M15.5 15.5L20 20"],
  plus: ["M12 5v14", "M5 12h14"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  take: ["M5 12l5 5L19 7"],
  star: ["M12 4l2.5 5.2 5.5.8-4 4 1 5.6-5-2.7-5 2.7 1-5.6-4-4 5.5-.8z"],
  starred: ["M12 4l2.5 5.2 5.5.8-4 4 1 5.6-5-2.7-5 2.7 1-5.6-4-4 5.5-.8z", "M12 7v9", "M9 11l6 3", "M15 11l-6 3"],
  wave: ["M3 15c3-9 6-9 9-3s6 6 9-3"],
};

export function icon(name) {
  return s(
    "svg",
    { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    ICONS[name].map((d) => s("path", { d })),
  );
}

/** A button that is a picture, with its name for those who do not see it and a tip for those who do. */
export function pictured(name, label, properties = {}) {
  return h("button", { type: "button", class: "pictured", title: label, "aria-label": label, ...properties }, icon(name));
}
