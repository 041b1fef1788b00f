// What was rated and not yet saved, and how long it took so far: a reload or a closed window loses nothing.

const name = (code, item) => `fabula-judge ${code} ${item}`;

export function draft(code, item) {
  try {
    return JSON.parse(localStorage.getItem(name(code, item))) ?? {};
  } catch {
    return {};
  }
}

export function keep(code, item, values) {
  try {
    localStorage.setItem(name(code, item), JSON.stringify(values));
  } catch {
    // A browser that keeps nothing: the page works, a reload begins the pair again.
  }
}

export function forget(code, item) {
  try {
    localStorage.removeItem(name(code, item));
  } catch {
    // See above.
  }
}

/** Counts the seconds for which the page is seen. */
export class Watch {
  constructor(seconds) {
    this.before = seconds;
    this.since = document.hidden ? null : performance.now();
    this.turn = () => {
      this.before = this.seconds;
      this.since = document.hidden ? null : performance.now();
    };
    document.addEventListener("visibilitychange", this.turn);
  }

  get seconds() {
    return this.before + (this.since === null ? 0 : (performance.now() - this.since) / 1000);
  }

  stop() {
    document.removeEventListener("visibilitychange", this.turn);
  }
}
