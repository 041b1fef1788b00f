// A ZIP file whose members are stored as they are: all that DOCX and EPUB ask for.

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k += 1) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c >>> 0;
});

function crc(bytes) {
  let c = 0xffffffff;
  for (const byte of bytes) c = TABLE[(c ^ byte) & 0xff] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

/** Numbers of two or four bytes, lowest byte first: numbers([2, 20], [4, size]). */
function numbers(...fields) {
  const bytes = [];
  for (const [width, value] of fields) for (let at = 0; at < width; at += 1) bytes.push(Math.floor(value / 256 ** at) % 256);
  return new Uint8Array(bytes);
}

const UTF8 = 0x0800;
/** 1 January 1980, the first day that a ZIP file knows: the same story gives the same file. */
const DAY = 0x21;

/** `files`: [[name, text]], in this order. */
export function zip(files) {
  const encoder = new TextEncoder();
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const [name, text] of files) {
    const path = encoder.encode(name);
    const content = encoder.encode(text);
    const facts = [[2, 20], [2, UTF8], [2, 0], [2, 0], [2, DAY], [4, crc(content)], [4, content.length], [4, content.length], [2, path.length], [2, 0]];
    parts.push(numbers([4, 0x04034b50], ...facts), path, content);
    directory.push(numbers([4, 0x02014b50], [2, 20], ...facts, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]), path);
    offset += 30 + path.length + content.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = numbers([4, 0x06054b50], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, size], [4, offset], [2, 0]);
  return new Blob([...parts, ...directory, end]);
}
