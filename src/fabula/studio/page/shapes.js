// The shapes that stories have, as curves from 0 (lowest) to 1 (highest) over the story's length.
// The six are those of Reagan et al., "The emotional arcs of stories are dominated by six basic shapes" (2016).

const wave = (t, turns, from) => 0.5 - 0.5 * from * Math.cos(Math.PI * turns * t);

export const SHAPES = [
  { name: "Rags to riches", says: "a rise", at: (t) => wave(t, 1, 1) },
  { name: "Riches to rags", says: "a fall", at: (t) => wave(t, 1, -1) },
  { name: "Man in a hole", says: "a fall, then a rise", at: (t) => wave(t, 2, -1) },
  { name: "Icarus", says: "a rise, then a fall", at: (t) => wave(t, 2, 1) },
  { name: "Cinderella", says: "a rise, a fall, a rise", at: (t) => wave(t, 3, 1) },
  { name: "Oedipus", says: "a fall, a rise, a fall", at: (t) => wave(t, 3, -1) },
  { name: "Even", says: "calm throughout", at: () => 0.5 },
];

/** The label at every one of `count` sentences. */
export function tagsOf(shape, count, labels) {
  return Array.from({ length: count }, (_, i) => {
    const height = shape.at(count > 1 ? i / (count - 1) : 0);
    return labels[Math.min(labels.length - 1, Math.max(0, Math.round(height * (labels.length - 1))))];
  });
}

/** The points of a small picture of it. */
export function sketch(shape, width, height) {
  return Array.from({ length: 25 }, (_, i) => `${(i / 24) * width},${(1 - shape.at(i / 24)) * height}`).join(" ");
}
