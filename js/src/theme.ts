/** Whether the page is dark, and how to hear that it has changed. */

const WORDS = ["data-theme", "data-bs-theme", "data-mode", "data-color-mode", "theme"];

export function isDark(): boolean {
  const { body, documentElement: html } = document;
  const jupyter = body.getAttribute("data-jp-theme-light");
  if (jupyter) return jupyter === "false";
  for (const place of [body, html]) {
    const word = WORDS.map((name) => place.getAttribute(name)).find((value) => value === "dark" || value === "light");
    if (word) return word === "dark";
    if (/(^|\s)(vscode-dark|vscode-high-contrast|dark|dark-theme)(\s|$)/.test(place.className)) return true;
    if (/(^|\s)(vscode-light|vscode-high-contrast-light|light|light-theme)(\s|$)/.test(place.className)) return false;
  }
  return darkPreferred()?.matches ?? false;
}

/** Calls `changed` when the page's theme may have; gives what ends it. */
export function onThemeChange(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  for (const place of [document.body, document.documentElement]) observer.observe(place, { attributes: true });
  const preferred = darkPreferred();
  preferred?.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    preferred?.removeEventListener("change", changed);
  };
}

function darkPreferred(): MediaQueryList | null {
  return typeof matchMedia === "function" ? matchMedia("(prefers-color-scheme: dark)") : null;
}
