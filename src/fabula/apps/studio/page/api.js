// The server, as functions. Every failure is a `Failure` with one line for a person.

export class Failure extends Error {
  constructor(message, { status = 0, field = null, fields = null, wait = null } = {}) {
    super(message);
    this.status = status;
    this.field = field;
    /** Everything that was refused: [{field, message}]. */
    this.fields = fields ?? (field === null ? [] : [{ field, message }]);
    this.wait = wait;
  }
  /** No server answered at all. */
  get gone() {
    return this.status === 0;
  }
}

export const GONE = "The studio’s server does not answer. Your words are safe on this page; start it again with “fabula studio”.";

async function failure(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // not the studio's own answer: a proxy's, say
  }
  const wait = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  // A field of the request is a line of the story to its writer.
  const message = error?.message?.replace(/^(?:sentences|state\.lines)\[(\d+)\](?:\.\w+)?:/, (_, i) => `sentence ${Number(i) + 1}`);
  return new Failure(message ?? `the server answered ${response.status}`, {
    status: response.status,
    field: error?.field ?? null,
    fields: error?.fields ?? null,
    wait: Number.isFinite(wait) ? wait : null,
  });
}

/** A server that says nothing for so long is gone: what waits for a model has a signal of its own instead. */
const ANSWER = 20_000;

async function send(method, path, body, options = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: options.signal === undefined ? AbortSignal.timeout(ANSWER) : undefined,
      ...options,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(GONE);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

async function json(method, path, body, options) {
  const response = await send(method, path, body, options);
  if (response.status === 204) return null;
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(GONE);
  }
}

const id = encodeURIComponent;

export const health = () => json("GET", "/api/health");
export const models = () => json("GET", "/api/models");
export const write = (body, signal) => json("POST", "/api/write", body, { signal });
export const posterior = (body, signal) => json("POST", "/api/posterior", body, { signal });
export const tag = (body, signal) => json("POST", "/api/tag", body, { signal });
export const words = (body, signal) => json("POST", "/api/words", body, { signal });
export const mentions = (body) => json("POST", "/api/mentions", body);
export const explain = (body, signal) => json("POST", "/api/explain", body, { signal });

export const stories = (limit, offset, query, trash) =>
  json("GET", `/api/stories?limit=${limit}&offset=${offset}&query=${id(query)}&trash=${trash}`);
export const copyStory = (story) => json("POST", `/api/stories/${id(story)}/copy`);
export const restoreStory = (story) => json("POST", `/api/stories/${id(story)}/restore`);
export const destroyStory = (story) => json("DELETE", `/api/stories/${id(story)}?forever=true`);
export const versions = (story, branch) => json("GET", `/api/stories/${id(story)}/branches/${id(branch)}/versions`);
export const version = (story, branch, version) =>
  json("GET", `/api/stories/${id(story)}/branches/${id(branch)}/versions/${id(version)}`);
export const createStory = (title, state, automatic, options) => json("POST", "/api/stories", { title, state, automatic }, options);
export const story = (story) => json("GET", `/api/stories/${id(story)}`);
export const renameStory = (story, title, automatic) => json("PATCH", `/api/stories/${id(story)}`, { title, automatic });
export const deleteStory = (story) => json("DELETE", `/api/stories/${id(story)}`);
export const createBranch = (story, body) => json("POST", `/api/stories/${id(story)}/branches`, body);
export const branch = (story, branch) => json("GET", `/api/stories/${id(story)}/branches/${id(branch)}`);
export const deleteBranch = (story, branch) => json("DELETE", `/api/stories/${id(story)}/branches/${id(branch)}`);
export const saveBranch = (story, branch, body, options) =>
  json("PUT", `/api/stories/${id(story)}/branches/${id(branch)}`, body, options);

/**
 * Fills in, telling as it goes: onProgress({drawn, samples}), onWriting({lines: {number: words so far}}),
 * onCandidates(filling); resolves to the last filling.
 * Aborting the signal closes the connection, which ends the work on the server too.
 */
export async function fill(body, { signal, onWaiting, onProgress, onWriting, onCandidates }) {
  const response = await send("POST", "/api/fill/stream", body, { signal });
  let last = null;
  try {
    for await (const { event, data } of events(response.body)) {
      if (event === "waiting") onWaiting(data);
      else if (event === "progress") onProgress(data);
      else if (event === "writing") onWriting(data);
      else if (event === "candidates") onCandidates(data);
      else if (event === "error") throw new Failure(data.error.message, data.error);
      else if (event === "done") last = data;
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Failure) throw error;
    throw new Failure(GONE);
  }
  if (!last) throw new Failure(GONE);
  return last;
}

/** Server-sent events out of a stream of bytes (EventSource cannot post). */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest = (rest + value).replaceAll("\r\n", "\n");
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const lines = rest.slice(0, end).split("\n");
        rest = rest.slice(end + 2);
        const field = (name) =>
          lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).trim()).join("\n");
        if (field("data")) yield { event: field("event") || "message", data: JSON.parse(field("data")) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
