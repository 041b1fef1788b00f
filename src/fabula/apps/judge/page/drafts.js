// What was rated and not yet saved, and how long it took so far: a reload or a closed window loses nothing.

const name = ({ study, code, item }) => `fabula-judge ${study} ${code} ${item}`;

export function draft(of) {
  try {
    return JSON.parse(localStorage.getItem(name(of))) ?? {};
  } catch {
    return {};
  }
}

export function keep(of, values) {
  try {
    localStorage.setItem(name(of), JSON.stringify(values));
  } catch {
    // A browser that keeps nothing: the page works, a reload begins the pair again.
  }
}

export function forget(of) {
  try {
    localStorage.removeItem(name(of));
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
