// Sets the chosen theme before the first paint: as a module it would come after
// it, and a dark console would flash white. Without a choice the system decides.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('holdfast.theme');
  } catch {
    // Storage may be forbidden; the system's theme is a good answer too.
  }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
