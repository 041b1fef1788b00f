// Light or dark before the first paint: as the system says, unless the reader chose. Not a module, so that it runs at once.

(() => {
  const root = document.documentElement;
  try {
    const chosen = localStorage.getItem("fabula.theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // no storage: the system's choice holds
  }
})();
