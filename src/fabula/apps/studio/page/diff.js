// Which words of a sentence are new against another.

const words = (text) => text.split(/\s+/).filter(Boolean);
const bare = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}']/gu, "") || word;

/** The words of `text`, each with whether it is outside the longest run of words that `other` has too, in order. */
export function compare(text, other) {
  const a = words(text);
  const b = words(other).map(bare);
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      length[i][j] = bare(a[i]) === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const found = [];
  for (let i = 0, j = 0; i < a.length; ) {
    if (j < b.length && bare(a[i]) === b[j]) {
      found.push({ text: a[i], fresh: false });
      i += 1;
      j += 1;
    } else if (j < b.length && length[i][j + 1] >= length[i + 1][j]) j += 1;
    else {
      found.push({ text: a[i], fresh: true });
      i += 1;
    }
  }
  return found;
}
