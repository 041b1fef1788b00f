// ZIP files, for DOCX and EPUB: written with members stored as they are, read with members stored or deflated.

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

/** The most bytes that a member may unpack to. */
const UNPACKED = 20_000_000;

/** The members of a ZIP file: a map from a name to a function that gives its text. */
export async function unzip(buffer) {
  const view = new DataView(buffer);
  const files = new Map();
  let end = buffer.byteLength - 22;
  const bad = () => new Error("it is damaged, or no file of this kind");
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) throw bad();
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    if (at + 46 > buffer.byteLength || view.getUint32(at, true) !== 0x02014b50) throw bad();
    const [name, extra, comment] = [28, 30, 32].map((field) => view.getUint16(at + field, true));
    const [method, size, offset] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true), view.getUint32(at + 42, true)];
    const path = new TextDecoder().decode(new Uint8Array(buffer, at + 46, name));
    const start = offset + 30 + view.getUint16(offset + 26, true) + view.getUint16(offset + 28, true);
    files.set(path, () => unpacked(buffer.slice(start, start + size), method));
    at += 46 + name + extra + comment;
  }
  return files;
}

async function unpacked(packed, method) {
  if (method !== 0 && method !== 8) throw new Error("it is packed in a way that this page cannot read");
  const stream = new Blob([packed]).stream();
  const reader = (method ? stream.pipeThrough(new DecompressionStream("deflate-raw")) : stream).getReader();
  const parts = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    size += part.value.length;
    if (size > UNPACKED) throw new Error("it is larger than 20 MB when it is unpacked");
    parts.push(part.value);
  }
  return new Blob(parts).text();
}
